//! Chat templates as model servers render them: from a template and a request body to the text of the prompt.
//!
//! Templates are Jinja as Hugging Face's transformers sets it up, and messages are prepared as vLLM does. A template and a body are input
//! from outside: both are bounded, and so is the work.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod json;
mod request;
mod source;

use core::fmt;
use std::borrow::Cow;
use std::io;

use icu_normalizer::ComposingNormalizerBorrowed;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use request::ChatRequest;
use source::ContentFormat;

/// Maximum number of bytes of a template.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Work that the rendering of one prompt may take: instructions, and 64 bytes of created data each. A prompt of 100 KB takes some 10 000.
const FUEL: u32 = 200_000;

/// Bytes of the stack on which a prompt is rendered. Lists in lists are dropped, printed and compared by recursion, and a template can nest
/// one with each of its steps. Only the pages that are used take memory.
const STACK: usize = 256 << 20;

/// The name of the only template. The name of an HTML file would escape values.
const NAME: &str = "chat";

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    content: ContentFormat,
    bos_token: String,
    eos_token: String,
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// It has this many bytes, more than [`MAX_TEMPLATE_BYTES`].
    TooLong(usize),
    /// It does not compile, for this reason.
    Syntax(String),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => {
                write!(f, "the chat template has {bytes} bytes; allowed are {MAX_TEMPLATE_BYTES}")
            }
            Self::Syntax(reason) => write!(f, "the chat template does not compile: {reason}"),
        }
    }
}

impl core::error::Error for TemplateError {}

/// Why a body has no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrendered {
    /// It is not a chat request.
    Body(String),
    /// It has images, audio, video or other content than text.
    Content,
    /// It brings its own template, or continues a message.
    Unsupported(&'static str),
    /// The template failed, or took too much work or space.
    Template(String),
}

impl fmt::Display for Unrendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(reason) => write!(f, "the body is not a chat request: {reason}"),
            Self::Content => f.write_str("a message has other content than text"),
            Self::Unsupported(field) => write!(f, "{field} is not supported"),
            Self::Template(reason) => write!(f, "the chat template failed: {reason}"),
        }
    }
}

impl core::error::Error for Unrendered {}

impl ChatTemplate {
    /// Compiles a template. `bos_token` and `eos_token` are the texts of the model's special tokens, or empty.
    pub fn compile(template: &str, bos_token: &str, eos_token: &str) -> Result<Self, TemplateError> {
        if template.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong(template.len()));
        }
        let source = source::without_extensions(template);
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(syntax_error)?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_fuel(Some(FUEL.into()));
        environment.add_filter("tojson", json::to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, source).map_err(syntax_error)?;
        Ok(Self {
            environment,
            content: ContentFormat::of(template),
            bos_token: bos_token.to_owned(),
            eos_token: eos_token.to_owned(),
        })
    }

    /// The text of the prompt of a chat request, at most `max_bytes` long. `now` is the time since 1970, in seconds, for templates that
    /// print the date, which is that of UTC.
    pub fn render(&self, body: &[u8], now: i64, max_bytes: usize) -> Result<String, Unrendered> {
        stacker::grow(STACK, || self.render_here(body, now, max_bytes))
    }

    fn render_here(&self, body: &[u8], now: i64, max_bytes: usize) -> Result<String, Unrendered> {
        let request = ChatRequest::read(body)?;
        let date = Value::from_function(move |format: String| date(&format, now));
        let special = [
            ("bos_token", Value::from(self.bos_token.as_str())),
            ("eos_token", Value::from(self.eos_token.as_str())),
            ("strftime_now", date),
        ];
        let context = request.context(self.content, special)?;
        let template = self.environment.get_template(NAME).map_err(|error| template_error(&error))?;
        let mut text = Bounded { text: Vec::with_capacity(body.len().min(max_bytes)), max_bytes };
        template.render_captured_to(context, &mut text).map_err(|error| template_error(&error))?;
        String::from_utf8(text.text).map_err(|error| Unrendered::Template(error.to_string()))
    }
}

/// The text in Unicode's normalization form C, to which some tokenizers bring it first.
pub fn normalized(text: String) -> String {
    const NFC: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfc();
    match NFC.normalize(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(normalized) => normalized,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn syntax_error(error: Error) -> TemplateError {
    TemplateError::Syntax(error.to_string())
}

fn template_error(error: &Error) -> Unrendered {
    Unrendered::Template(error.to_string())
}

/// Text up to a number of bytes.
struct Bounded {
    text: Vec<u8>,
    max_bytes: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.max_bytes {
            return Err(io::Error::other(format!("the text has more than {} bytes", self.max_bytes)));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `raise_exception`: the template refuses the request.
fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// `strftime_now`: a date.
fn date(format: &str, now: i64) -> Result<String, Error> {
    let failed = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = Timestamp::from_second(now).map_err(failed)?.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &now).map_err(failed)
}
