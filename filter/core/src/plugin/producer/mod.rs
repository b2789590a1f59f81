//! Producers: plugins that provide what others decide by.

mod approx_prefix_cache_producer;
mod inflight_load_producer;
mod session_id_producer;
mod token_producer;

pub use approx_prefix_cache_producer::ApproxPrefixCacheProducer;
pub use inflight_load_producer::InflightLoadProducer;
pub use session_id_producer::SessionIdProducer;
pub use token_producer::TokenProducer;
