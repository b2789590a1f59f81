//! Messages to Envoy's log.

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::callbacks;
use super::types::Buffer;

/// Envoy's log. Its component is `dynamic_modules`.
struct EnvoyLog;

fn envoy_level(level: Level) -> u32 {
    match level {
        Level::Trace => 0,
        Level::Debug => 1,
        Level::Info => 2,
        Level::Warn => 3,
        Level::Error => 4,
    }
}

impl Log for EnvoyLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // SAFETY: the function takes a number, on any thread.
        unsafe { callbacks::log_enabled(envoy_level(metadata.level())) }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let message = format!("endpoint-picker: {}", record.args());
            // SAFETY: Envoy reads the message during the call, on any thread.
            unsafe { callbacks::log(envoy_level(record.level()), Buffer::of(message.as_bytes())) }
        }
    }

    fn flush(&self) {}
}

/// Sends all messages of the module to Envoy's log, also about panics.
pub(crate) fn install() {
    // Envoy may call the module's start twice; the second call has no effect.
    if log::set_logger(&EnvoyLog).is_ok() {
        log::set_max_level(LevelFilter::Debug);
        std::panic::set_hook(Box::new(|panic| log::error!("a defect of the picker: {panic}")));
    }
}
