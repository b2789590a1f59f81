//! Each stage of the metrics agent, and each of its commands, uses these: [`runtime`] has the clock, the
//! tasks and the connections of listeners, [`files`] reads bounded files again when they change,
//! [`credentials`] are certificates, keys and tokens of such files, [`client`] opens connections with them,
//! and [`suggestion`] finds the name that was meant.
//!
//! It knows nothing of endpoints, pools and requests.

pub mod client;
pub mod credentials;
pub mod files;
pub mod runtime;
pub mod suggestion;
