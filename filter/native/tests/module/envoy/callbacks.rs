//! Envoy's callbacks.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use super::config::EnvoyConfig;
use super::state::{Call, Panic, Reply, Value, of_pointer as request};
use super::{Buffer, Header, WORKERS, list, scheduler, write};

/// More items than any memory holds.
const TOO_MANY: usize = usize::MAX / 2;

fn config<'a>(envoy: *mut c_void) -> &'a EnvoyConfig {
    // SAFETY: the module calls with the pointer of a live configuration during a hook.
    unsafe { &*envoy.cast::<EnvoyConfig>() }
}

macro_rules! callbacks {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            #[unsafe(export_name = concat!("envoy_dynamic_module_callback_", stringify!($name)))]
            pub(super) extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                let _side = $crate::envoy::calls::Side::callback(stringify!($name));
                $body
            }
        )*
    };
}
pub(super) use callbacks;

callbacks! {
    fn log(level: u32, message: Buffer) {
        if level >= 4 {
            eprintln!("{}", message.text());
        }
    }
    fn log_enabled(level: u32) -> bool { level >= 3 }
    fn get_concurrency() -> u32 { WORKERS }

    fn http_get_headers_size(envoy: *mut c_void, map: u32) -> usize {
        let envoy = request(envoy);
        if (map == 0 && envoy.panics_at(Panic::RequestHeaders)) || (map == 2 && envoy.panics_at(Panic::ResponseHeaders)) {
            return TOO_MANY;
        }
        envoy.headers.borrow()[map as usize].len()
    }
    fn http_get_headers(envoy: *mut c_void, map: u32, headers: *mut Header) -> bool {
        for (index, (name, value)) in request(envoy).headers.borrow()[map as usize].iter().enumerate() {
            let header = Header { name: Buffer::of(name), value: Buffer::of(value) };
            // SAFETY: the module gives room for all headers.
            unsafe { headers.add(index).write(header) };
        }
        true
    }
    fn http_set_header(envoy: *mut c_void, map: u32, name: Buffer, value: Buffer) -> bool {
        let headers = &mut request(envoy).headers.borrow_mut()[map as usize];
        headers.retain(|(header, _)| header != name.bytes());
        // As Envoy, which sets no empty header.
        if !value.ptr.is_null() && value.length > 0 {
            headers.push((name.bytes().to_vec(), value.bytes().to_vec()));
        }
        true
    }
    fn http_add_header(envoy: *mut c_void, map: u32, name: Buffer, value: Buffer) -> bool {
        request(envoy).headers.borrow_mut()[map as usize].push((name.bytes().to_vec(), value.bytes().to_vec()));
        true
    }

    fn http_get_body_size(envoy: *mut c_void, part: u32) -> usize {
        let envoy = request(envoy);
        [&envoy.received, &envoy.buffered, &envoy.response][part as usize].borrow().len()
    }
    fn http_get_body_chunks_size(envoy: *mut c_void, part: u32) -> usize {
        let envoy = request(envoy);
        if (part < 2 && envoy.panics_at(Panic::RequestBody)) || (part == 2 && envoy.panics_at(Panic::ResponseBody)) {
            return TOO_MANY;
        }
        // As Envoy, in several chunks if there is more than a byte.
        http_get_body_size((&raw const *envoy).cast_mut().cast(), part).min(if envoy.is_undivided.get() { 1 } else { 2 })
    }
    fn http_get_body_chunks(envoy: *mut c_void, part: u32, chunks: *mut Buffer) -> bool {
        let envoy = request(envoy);
        let body = [&envoy.received, &envoy.buffered, &envoy.response][part as usize].borrow();
        let first = if envoy.is_undivided.get() { body.len() } else { body.len().min(1) };
        let (first, rest) = body.split_at(first);
        for (index, piece) in [first, rest].into_iter().filter(|piece| !piece.is_empty()).enumerate() {
            // SAFETY: the module gives room for all chunks.
            unsafe { chunks.add(index).write(Buffer::of(piece)) };
        }
        true
    }
    fn http_drain_body(envoy: *mut c_void, part: u32, bytes: usize) -> bool {
        let envoy = request(envoy);
        let mut body = [&envoy.received, &envoy.buffered, &envoy.response][part as usize].borrow_mut();
        let count = bytes.min(body.len());
        body.drain(..count);
        true
    }
    fn http_append_body(envoy: *mut c_void, part: u32, data: Buffer) -> bool {
        let envoy = request(envoy);
        [&envoy.received, &envoy.buffered, &envoy.response][part as usize].borrow_mut().extend(data.bytes());
        true
    }
    fn http_received_buffered_request_body(envoy: *mut c_void) -> bool { request(envoy).is_same.get() }
    fn http_get_buffer_limit(envoy: *mut c_void) -> u64 { request(envoy).buffer_limit.get() }
    fn http_set_buffer_limit(envoy: *mut c_void, bytes: u64) { request(envoy).buffer_limit.set(bytes); }

    fn http_send_response(
        envoy: *mut c_void,
        status: u32,
        headers: *const Header,
        headers_count: usize,
        body: Buffer,
        details: Buffer,
    ) {
        let headers = list(headers, headers_count).iter();
        let headers = headers.map(|header| (header.name.text(), header.value.text())).collect();
        request(envoy).pass_reply(Reply { status, headers, body: body.text(), details: details.text() });
    }

    fn http_send_response_headers(envoy: *mut c_void, headers: *const Header, headers_count: usize, is_last: bool) {
        assert!(!is_last);
        let headers = list(headers, headers_count).iter();
        let headers = headers.map(|header| (header.name.text(), header.value.text())).collect();
        request(envoy).own.borrow_mut().head = Some(headers);
    }
    fn http_send_response_data(envoy: *mut c_void, data: Buffer, is_last: bool) {
        let mut own = request(envoy).own.borrow_mut();
        assert!(!own.is_complete, "a chunk after the last");
        own.body.push_str(&data.text());
        own.is_complete = is_last;
    }
    fn http_filter_reset_stream(envoy: *mut c_void, reason: u32, details: Buffer) {
        assert_eq!(reason, 0);
        request(envoy).own.borrow_mut().reset = Some(details.text());
    }
    fn http_filter_reset_http_stream(envoy: *mut c_void, number: u64) {
        request(envoy).own.borrow_mut().resets.push(number);
    }
    fn http_filter_start_http_stream(
        envoy: *mut c_void,
        number: *mut u64,
        cluster: Buffer,
        headers: *const Header,
        headers_count: usize,
        body: Buffer,
        is_whole: bool,
        timeout_ms: u64,
    ) -> u32 {
        assert!(is_whole && timeout_ms == 0);
        let mut own = request(envoy).own.borrow_mut();
        if cluster.text() == "missing" {
            return 1;
        }
        let headers = list(headers, headers_count).iter();
        let headers = headers.map(|header| (header.name.text(), header.value.text())).collect();
        own.calls.push(Call { headers, body: body.text() });
        write(number, own.calls.len() as u64);
        0
    }

    fn http_get_metadata_keys_count(envoy: *mut c_void, source: u32, namespace: Buffer) -> usize {
        assert_eq!(source, 0);
        if request(envoy).panics_at(Panic::Metadata) {
            return TOO_MANY;
        }
        let namespace = namespace.text();
        request(envoy).metadata.borrow().keys().filter(|(other, _)| *other == namespace).count()
    }
    fn http_get_metadata_keys(envoy: *mut c_void, _source: u32, namespace: Buffer, keys: *mut Buffer) -> bool {
        let namespace = namespace.text();
        let metadata = request(envoy).metadata.borrow();
        let found = metadata.keys().filter(|(other, _)| *other == namespace);
        for (index, (_, key)) in found.enumerate() {
            // SAFETY: the module gives room for all keys.
            unsafe { keys.add(index).write(Buffer::of(key.as_bytes())) };
        }
        true
    }
    fn http_get_metadata_string(
        envoy: *mut c_void,
        _source: u32,
        namespace: Buffer,
        key: Buffer,
        value: *mut Buffer,
    ) -> bool {
        match request(envoy).metadata.borrow().get(&(namespace.text(), key.text())) {
            Some(Value::Text(text)) => {
                write(value, Buffer::of(text.as_bytes()));
                true
            }
            Some(Value::List(_) | Value::Number(_)) | None => false,
        }
    }
    fn http_get_metadata_list_size(
        envoy: *mut c_void,
        _source: u32,
        namespace: Buffer,
        key: Buffer,
        size: *mut usize,
    ) -> bool {
        match request(envoy).metadata.borrow().get(&(namespace.text(), key.text())) {
            Some(Value::List(items)) => {
                write(size, items.len());
                true
            }
            Some(Value::Text(_) | Value::Number(_)) | None => false,
        }
    }
    fn http_get_metadata_list_string(
        envoy: *mut c_void,
        _source: u32,
        namespace: Buffer,
        key: Buffer,
        index: usize,
        value: *mut Buffer,
    ) -> bool {
        let metadata = request(envoy).metadata.borrow();
        let Some(Value::List(items)) = metadata.get(&(namespace.text(), key.text())) else { return false };
        items[index].as_ref().map(|item| write(value, Buffer::of(item.as_bytes()))).is_some()
    }
    fn http_set_dynamic_metadata_string(envoy: *mut c_void, namespace: Buffer, key: Buffer, value: Buffer) {
        let value = Value::Text(value.text());
        request(envoy).metadata.borrow_mut().insert((namespace.text(), key.text()), value);
    }
    fn http_set_dynamic_metadata_number(envoy: *mut c_void, namespace: Buffer, key: Buffer, value: f64) {
        let value = Value::Number(value);
        request(envoy).metadata.borrow_mut().insert((namespace.text(), key.text()), value);
    }
    fn http_set_dynamic_metadata_struct(envoy: *mut c_void, namespace: Buffer, encoded: Buffer) {
        request(envoy).structures.borrow_mut().push((namespace.text(), encoded.bytes().to_vec()));
    }
    fn http_set_filter_state_bytes(envoy: *mut c_void, key: Buffer, value: Buffer) -> bool {
        let old = request(envoy).filter_state.borrow_mut().insert(key.text(), value.bytes().to_vec());
        assert_eq!(old, None, "set twice");
        true
    }
    fn http_get_filter_state_bytes(envoy: *mut c_void, key: Buffer, value: *mut Buffer) -> bool {
        let state = request(envoy).filter_state.borrow();
        state.get(&key.text()).map(|bytes| write(value, Buffer::of(bytes))).is_some()
    }
    fn http_filter_get_attribute_int(envoy: *mut c_void, attribute: u32, value: *mut u64) -> bool {
        let number = request(envoy).numbers.borrow().get(&attribute).copied();
        // SAFETY: the module gives a place for the result.
        number.map(|number| unsafe { value.write(number) }).is_some()
    }
    fn http_filter_get_attribute_string(envoy: *mut c_void, attribute: u32, value: *mut Buffer) -> bool {
        let attributes = request(envoy).attributes.borrow();
        attributes.get(&attribute).map(|bytes| write(value, Buffer::of(bytes))).is_some()
    }
    fn http_set_upstream_override_host(envoy: *mut c_void, host: Buffer, strict: bool) -> bool {
        *request(envoy).override_host.borrow_mut() = Some((host.text(), strict));
        true
    }
    fn http_filter_get_worker_index(envoy: *mut c_void) -> u32 { request(envoy).worker }
    fn http_clear_route_cache(envoy: *mut c_void) { request(envoy).find_route(); }
    fn get_most_specific_route_config(envoy: *mut c_void) -> *const c_void { request(envoy).route.get() }

    fn http_filter_config_define_counter(
        envoy: *mut c_void, name: Buffer, labels: *const Buffer, count: usize, id: *mut usize,
    ) -> u32 {
        define(envoy, name, list(labels, count), id)
    }
    fn http_filter_config_define_gauge(
        envoy: *mut c_void, name: Buffer, labels: *const Buffer, count: usize, id: *mut usize,
    ) -> u32 {
        define(envoy, name, list(labels, count), id)
    }
    fn http_filter_config_define_histogram(
        envoy: *mut c_void, name: Buffer, labels: *const Buffer, count: usize, id: *mut usize,
    ) -> u32 {
        define(envoy, name, list(labels, count), id)
    }
    // Through a request, as before Envoy 1.39. The mock is a newer Envoy, so the module has no reason to.
    fn http_filter_increment_counter(_e: *mut c_void, _id: usize, _v: *const Buffer, _n: usize, _a: u64) -> u32 { 1 }
    fn http_filter_set_gauge(_e: *mut c_void, _id: usize, _v: *const Buffer, _n: usize, _a: u64) -> u32 { 1 }
    fn http_filter_record_histogram_value(_e: *mut c_void, _id: usize, _v: *const Buffer, _n: usize, _a: u64) -> u32 { 1 }
    fn http_filter_config_increment_counter(
        envoy: *mut c_void, id: usize, values: *const Buffer, count: usize, amount: u64,
    ) -> u32 {
        change(envoy, id, list(values, count), |value| *value += amount)
    }
    fn http_filter_config_set_gauge(
        envoy: *mut c_void, id: usize, values: *const Buffer, count: usize, amount: u64,
    ) -> u32 {
        change(envoy, id, list(values, count), |value| *value = amount)
    }
    // The mock keeps only the number of a histogram's values.
    fn http_filter_config_record_histogram_value(
        envoy: *mut c_void, id: usize, values: *const Buffer, count: usize, _amount: u64,
    ) -> u32 {
        change(envoy, id, list(values, count), |value| *value += 1)
    }

    fn http_filter_scheduler_new(envoy: *mut c_void) -> *mut c_void { request(envoy).mailbox.new_scheduler() }
    fn http_filter_scheduler_commit(scheduler: *mut c_void, event: u64) { scheduler::commit(scheduler, event); }
    fn http_filter_scheduler_delete(scheduler: *mut c_void) { scheduler::delete(scheduler); }
    fn http_filter_continue_decoding(envoy: *mut c_void) {
        let continued = &request(envoy).continued;
        continued.set(continued.get() + 1);
    }
    fn http_filter_config_scheduler_new(envoy: *mut c_void) -> *mut c_void {
        config(envoy).schedulers.fetch_add(1, Ordering::SeqCst);
        envoy
    }
    fn http_filter_config_scheduler_commit(scheduler: *mut c_void, event: u64) {
        config(scheduler).events.lock().unwrap().push(event);
    }
    fn http_filter_config_scheduler_delete(scheduler: *mut c_void) {
        config(scheduler).schedulers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn define(envoy: *mut c_void, name: Buffer, labels: &[Buffer], id: *mut usize) -> u32 {
    let metrics = &mut *config(envoy).metrics.lock().unwrap();
    write(id, metrics.len());
    metrics.push((name.text(), labels.iter().map(|label| label.text()).collect()));
    0
}

fn change(envoy: *mut c_void, id: usize, values: &[Buffer], change: impl FnOnce(&mut u64)) -> u32 {
    let (name, labels) = config(envoy).metrics.lock().unwrap()[id].clone();
    assert_eq!(labels.len(), values.len(), "{name}");
    let labels = labels.into_iter().zip(values.iter().map(|value| value.text())).collect();
    change(config(envoy).amounts.lock().unwrap().entry((name, labels)).or_default());
    0
}

/// Changes a metric of a configuration.
type Change = extern "C" fn(*mut c_void, usize, *const Buffer, usize, u64) -> u32;

/// Callbacks that the module looks up by name; without a use here the linker would drop them.
#[used]
static LATE: ([Change; 3], extern "C" fn(*mut c_void, Buffer, Buffer)) = (
    [
        http_filter_config_increment_counter,
        http_filter_config_set_gauge,
        http_filter_config_record_histogram_value,
    ],
    http_set_dynamic_metadata_struct,
);
