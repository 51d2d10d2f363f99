//! What must happen to a packet, answered from routes alone.
