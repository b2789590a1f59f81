//! The filter as it is built: its version and its form.

use endpoint_picker_wire::report::FilterForm;

/// The filter's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The form in which the filter runs in the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A WebAssembly module, one VM for each worker.
    Wasm,
    /// A native module, one state for all workers.
    Native,
}

impl Form {
    /// The form as a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        }
    }
}

impl From<Form> for FilterForm {
    fn from(form: Form) -> Self {
        match form {
            Form::Wasm => Self::Wasm,
            Form::Native => Self::Native,
        }
    }
}
