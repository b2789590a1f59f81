//! The list of the models of a listener's pools, in place of a server's.

use std::io;
use std::sync::Arc;

use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker_engine::model_list::ModelList;
use parking_lot::Mutex;

use super::host::request_headers;
use crate::abi::{LocalReply, RequestHandle};
use crate::agent::PoolHandle;
use crate::config::ModelListConfig;
use crate::process::clock;
use crate::process::proxy_name::proxy_name;

/// The pools of a list, and the list as all workers use it.
#[derive(Debug)]
pub(super) struct PoolModels {
    pools: Vec<PoolHandle>,
    list: Mutex<ModelList>,
}

impl PoolModels {
    /// The error is one of the system: no thread can be started.
    pub(super) fn new(config: &ModelListConfig) -> io::Result<Self> {
        let proxy = proxy_name();
        let pools = config.pools.iter().map(|pool| PoolHandle::new(pool, Some(&config.agent), &proxy));
        Ok(Self { pools: pools.collect::<io::Result<_>>()?, list: Mutex::default() })
    }

    /// The response to a request without a body that asks for the list. `None`: it has another purpose, or
    /// there is no list yet.
    pub(super) fn response(&self, request: &RequestHandle<'_>) -> Option<LocalReply> {
        let list = ModelList::is_requested(Headers(&request_headers(request, HeaderList::EMPTY)))
            .then(|| self.list())??;
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Some(LocalReply { status: 200, headers, body: list.to_vec(), details: "endpoint_picker_model_list" })
    }

    fn list(&self) -> Option<Arc<[u8]>> {
        let views = || self.pools.iter().map(|handle| handle.pool().view()).collect();
        self.list.lock().json(clock::now(), views)
    }
}
