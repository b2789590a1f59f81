//! Envoy's functions that every supported Envoy exports (1.38 and newer). With any other function here, the
//! module would not load in the oldest.
//!
//! Common to all: a [`Buffer`] argument is read during the call only. A [`Buffer`] result is Envoy's; it
//! lives until the hook ends or until a function changes the same object. `filter` and `config` are the
//! pointers that Envoy gave to the current hook.

use super::types::{Buffer, EnvoyPtr, Header, ModulePtr};

macro_rules! callbacks {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(
                $(#[$doc])*
                #[link_name = concat!("envoy_dynamic_module_callback_", stringify!($name))]
                pub(super) fn $name($($argument: $type),*) $(-> $result)?;
            )*
        }
    };
}

callbacks! {
    /// Logs a message; levels are 0 trace to 5 critical. Any thread may call it.
    fn log(level: u32, message: Buffer);
    /// Whether messages of this level are logged. Any thread may call it.
    fn log_enabled(level: u32) -> bool;
    /// The number of workers. Main thread only.
    fn get_concurrency() -> u32;

    /// The number of headers; 0 if there are none yet.
    fn http_get_headers_size(filter: EnvoyPtr, map: u32) -> usize;
    /// Writes all headers to `headers`, whose length is the result of [`http_get_headers_size`].
    fn http_get_headers(filter: EnvoyPtr, map: u32, headers: *mut Header) -> bool;
    /// Sets a header and removes its old values; with [`Buffer::NULL`] only removes them.
    fn http_set_header(filter: EnvoyPtr, map: u32, name: Buffer, value: Buffer) -> bool;
    /// Adds a header after those of its name.
    fn http_add_header(filter: EnvoyPtr, map: u32, name: Buffer, value: Buffer) -> bool;

    /// Bytes of a part of the body; 0 if it is not there.
    fn http_get_body_size(filter: EnvoyPtr, part: u32) -> usize;
    /// The number of chunks of a part of the body.
    fn http_get_body_chunks_size(filter: EnvoyPtr, part: u32) -> usize;
    /// Writes the chunks to `chunks`, whose length is the result of [`http_get_body_chunks_size`].
    fn http_get_body_chunks(filter: EnvoyPtr, part: u32, chunks: *mut Buffer) -> bool;
    /// Removes the first bytes of a part of the body.
    fn http_drain_body(filter: EnvoyPtr, part: u32, bytes: usize) -> bool;
    /// Appends to a part of the body.
    fn http_append_body(filter: EnvoyPtr, part: u32, data: Buffer) -> bool;
    /// Whether the received part is the one that an earlier filter had buffered, so that both parts are the
    /// same bytes.
    fn http_received_buffered_request_body(filter: EnvoyPtr) -> bool;
    /// The bytes that Envoy buffers for this stream; 0 is without a limit.
    fn http_get_buffer_limit(filter: EnvoyPtr) -> u64;
    /// Sets that limit.
    fn http_set_buffer_limit(filter: EnvoyPtr, bytes: u64);

    /// Sends a response to the client. Envoy may call other hooks of the same filter inside this call, also
    /// the hook that destroys it.
    fn http_send_response(
        filter: EnvoyPtr,
        status: u32,
        headers: *const Header,
        headers_count: usize,
        body: Buffer,
        details: Buffer,
    );

    /// Sends the head of a response in place of the router's. Inside this call, and inside the next two,
    /// Envoy may call other hooks of the same filter, also the hook that destroys it.
    fn http_send_response_headers(filter: EnvoyPtr, headers: *const Header, headers_count: usize, end_of_stream: bool);
    /// Sends a chunk of that response's body.
    fn http_send_response_data(filter: EnvoyPtr, data: Buffer, end_of_stream: bool);
    /// Resets the client's stream; reason 0 is a reset by the proxy.
    fn http_filter_reset_stream(filter: EnvoyPtr, reason: u32, details: Buffer);
    /// Sends a request of the filter's own to a cluster, and writes its number. Its response comes in hooks,
    /// also inside this call. A timeout of 0 is none. 0 is success.
    fn http_filter_start_http_stream(
        filter: EnvoyPtr,
        number: *mut u64,
        cluster: Buffer,
        headers: *const Header,
        headers_count: usize,
        body: Buffer,
        end_of_stream: bool,
        timeout_ms: u64,
    ) -> u32;

    /// Resets a request that the filter has sent.
    fn http_filter_reset_http_stream(filter: EnvoyPtr, number: u64);

    /// The number of keys in a namespace; 0 if it does not exist.
    fn http_get_metadata_keys_count(filter: EnvoyPtr, source: u32, namespace: Buffer) -> usize;
    /// Writes the keys to `keys`, whose length is the result of [`http_get_metadata_keys_count`].
    fn http_get_metadata_keys(filter: EnvoyPtr, source: u32, namespace: Buffer, keys: *mut Buffer) -> bool;
    /// A string; false if there is none. Logs an error if the value is of another type.
    fn http_get_metadata_string(filter: EnvoyPtr, source: u32, namespace: Buffer, key: Buffer, value: *mut Buffer) -> bool;
    /// The length of a list; false if the value is not a list.
    fn http_get_metadata_list_size(filter: EnvoyPtr, source: u32, namespace: Buffer, key: Buffer, size: *mut usize) -> bool;
    /// An item of a list; false if it is not a string.
    fn http_get_metadata_list_string(
        filter: EnvoyPtr,
        source: u32,
        namespace: Buffer,
        key: Buffer,
        index: usize,
        value: *mut Buffer,
    ) -> bool;
    /// Sets a string of the request's dynamic metadata.
    fn http_set_dynamic_metadata_string(filter: EnvoyPtr, namespace: Buffer, key: Buffer, value: Buffer);
    /// Sets a number of the request's dynamic metadata.
    fn http_set_dynamic_metadata_number(filter: EnvoyPtr, namespace: Buffer, key: Buffer, value: f64);
    /// Sets a value that filters of this request share. A value is set once: Envoy refuses a second one under
    /// the same key.
    fn http_set_filter_state_bytes(filter: EnvoyPtr, key: Buffer, value: Buffer) -> bool;
    /// Reads such a value; false if there is none.
    fn http_get_filter_state_bytes(filter: EnvoyPtr, key: Buffer, value: *mut Buffer) -> bool;

    /// An attribute of the request; false if it is not known yet.
    fn http_filter_get_attribute_string(filter: EnvoyPtr, attribute: u32, value: *mut Buffer) -> bool;
    /// An attribute that is a number; as [`http_filter_get_attribute_string`].
    fn http_filter_get_attribute_int(filter: EnvoyPtr, attribute: u32, value: *mut u64) -> bool;
    /// Prefers a host, an `ip:port`, for the next attempts; strictly: to the balancer, for the first attempt.
    /// False if it is not an address.
    fn http_set_upstream_override_host(filter: EnvoyPtr, host: Buffer, strict: bool) -> bool;
    /// The worker that runs the request, from 0; the main thread has the next number.
    fn http_filter_get_worker_index(filter: EnvoyPtr) -> u32;
    /// Has Envoy find the request's route again, at the next use of it.
    fn http_clear_route_cache(filter: EnvoyPtr);
    /// The module's own configuration of the most specific route that has one, or null.
    fn get_most_specific_route_config(filter: EnvoyPtr) -> ModulePtr;

    /// A scheduler of a request; the module deletes it. On the request's worker.
    fn http_filter_scheduler_new(filter: EnvoyPtr) -> EnvoyPtr;
    /// Has Envoy call `on_http_filter_scheduled` on the request's worker, unless the request is gone. Any
    /// thread, while the worker runs.
    fn http_filter_scheduler_commit(scheduler: EnvoyPtr, event: u64);
    /// Deletes a scheduler. Any thread.
    fn http_filter_scheduler_delete(scheduler: EnvoyPtr);
    /// Continues a request that the module has held. Envoy may call other hooks of the same filter inside
    /// this call, also the hook that destroys it.
    fn http_filter_continue_decoding(filter: EnvoyPtr);

    /// Defines a metric with names of labels. Only while the configuration is made. 0 is success.
    fn http_filter_config_define_counter(
        config: EnvoyPtr,
        name: Buffer,
        labels: *const Buffer,
        labels_count: usize,
        id: *mut usize,
    ) -> u32;
    /// As [`http_filter_config_define_counter`].
    fn http_filter_config_define_gauge(
        config: EnvoyPtr,
        name: Buffer,
        labels: *const Buffer,
        labels_count: usize,
        id: *mut usize,
    ) -> u32;
    /// As [`http_filter_config_define_counter`].
    fn http_filter_config_define_histogram(
        config: EnvoyPtr,
        name: Buffer,
        labels: *const Buffer,
        labels_count: usize,
        id: *mut usize,
    ) -> u32;
    /// Adds to a counter of the request's configuration. `values` has one value for each label of the metric.
    /// 0 is success.
    fn http_filter_increment_counter(
        filter: EnvoyPtr,
        id: usize,
        values: *const Buffer,
        values_count: usize,
        amount: u64,
    ) -> u32;
    /// Sets a gauge; as [`http_filter_increment_counter`].
    fn http_filter_set_gauge(
        filter: EnvoyPtr,
        id: usize,
        values: *const Buffer,
        values_count: usize,
        amount: u64,
    ) -> u32;
    /// Adds a value to a histogram; as [`http_filter_increment_counter`].
    fn http_filter_record_histogram_value(
        filter: EnvoyPtr,
        id: usize,
        values: *const Buffer,
        values_count: usize,
        amount: u64,
    ) -> u32;

    /// Adds hosts of this priority. All arrays but `metadata` have `count` values; `hosts` gets the new ones
    /// in the same order. Main thread only.
    fn cluster_add_hosts(
        cluster: EnvoyPtr,
        priority: u32,
        addresses: *const Buffer,
        weights: *const u32,
        regions: *const Buffer,
        zones: *const Buffer,
        sub_zones: *const Buffer,
        metadata: *const Buffer,
        metadata_per_host: usize,
        count: usize,
        hosts: *mut EnvoyPtr,
    ) -> bool;
    /// Removes hosts. Requests that have one keep it. Main thread only.
    fn cluster_remove_hosts(cluster: EnvoyPtr, hosts: *const EnvoyPtr, count: usize) -> usize;
    /// Ends the cluster's initialization. Main thread only, once.
    fn cluster_pre_init_complete(cluster: EnvoyPtr);
    /// A scheduler of a cluster; the module deletes it. Main thread only.
    fn cluster_scheduler_new(cluster: EnvoyPtr) -> EnvoyPtr;
    /// Has Envoy call `on_cluster_scheduled` on the main thread, unless the cluster is gone. Any thread.
    fn cluster_scheduler_commit(scheduler: EnvoyPtr, event: u64);
    /// Deletes a scheduler. Any thread.
    fn cluster_scheduler_delete(scheduler: EnvoyPtr);

    /// A scheduler of a configuration; the module deletes it. Main thread only.
    fn http_filter_config_scheduler_new(config: EnvoyPtr) -> EnvoyPtr;
    /// Has Envoy call `on_http_filter_config_scheduled` on the main thread, unless the configuration is gone.
    /// Any thread.
    fn http_filter_config_scheduler_commit(scheduler: EnvoyPtr, event: u64);
    /// Deletes a scheduler. Any thread.
    fn http_filter_config_scheduler_delete(scheduler: EnvoyPtr);
}
