//! A simulated fabric with virtual time and seeded faults.
