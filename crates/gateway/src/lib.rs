//! WebSocket and HTTP: connect, auth, router, projector, fan-out
