//! The client against real servers and lying ones.
