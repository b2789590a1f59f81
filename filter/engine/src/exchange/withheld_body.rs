//! Requests whose bodies the proxy keeps from the filter.

use endpoint_picker::decision::rejection::{Code, Rejection};

use super::steps::{Exchange, Flow};
use crate::error_body::error_body;
use crate::metrics::MetricSink;
use crate::pool_in_use::PoolInUse;
use crate::pool_store::PoolStore;
use crate::proxy::{Proxy, Result};

impl Exchange {
    /// The body of a held request will not arrive. The pool's failure mode decides, as without a snapshot.
    pub fn decide_without_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut PoolInUse<S, M>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        self.act_by_failure_mode(pool, proxy).unwrap_or(Flow::Continue)
    }
}

/// Answers a request that is held in vain, outside of its events: only its head could still pass it on.
pub fn refuse_withheld_body<S: PoolStore, M: MetricSink>(
    pool: &PoolInUse<S, M>,
    proxy: &mut impl Proxy,
) -> Result<()> {
    let rejection = Rejection {
        code: Code::ServiceUnavailable,
        reason: None,
        message: "the proxy does not pass the request's body on to the endpoint picker".into(),
    };
    pool.metrics.count_rejected(rejection.code);
    let headers = [("content-type", "application/json")];
    proxy.send_response(rejection.code.status(), &headers, &error_body(&rejection))
}
