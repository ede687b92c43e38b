from .gr_gate import GrGate


__all__ += ["GrGate"]
