//! Servers that fail or refuse, and an agent without readings: which rules and servers are left.

mod chaos;
mod degradation;
mod refusals;
