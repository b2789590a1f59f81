//! Chat templates as model servers render them: from a template and a request body to the text of the prompt.
//!
//! Templates are Jinja as Hugging Face's transformers sets it up, and messages are prepared as vLLM does. A
//! template and a body are input from outside: both are bounded, and so is the work.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod api;
mod chat;
mod json;
mod python;
mod room;
mod source;

use core::fmt;
use std::borrow::Cow;
use std::io;

use icu_normalizer::ComposingNormalizerBorrowed;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};

pub use api::ChatApi;
use api::messages::Adaptation;
use chat::{Chat, Message, Preparation};
use room::TemplateRoom;
use source::ContentFormat;

/// Maximum number of bytes of a template.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Work that the rendering of one prompt may take: instructions, and 64 bytes of created data each. A prompt
/// of 100 KB takes some 10 000.
const FUEL: u32 = 200_000;

/// Bytes of the stack on which a prompt is rendered. Lists in lists are dropped, printed and compared by
/// recursion, and a template can nest one with each of its steps. Only the pages that are used take memory.
const STACK: usize = 256 << 20;

/// Maximum number of bytes of the texts by which a template is probed.
const PROBE_BYTES: usize = 1 << 16;

/// Maximum number of bytes of the format of a date. A directive of five bytes can make 255, before fuel is
/// taken for them.
const MAX_DATE_FORMAT: usize = 1024;

/// The efforts of Anthropic's API.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// The name of the only template. The name of an HTML file would escape values.
const NAME: &str = "chat";

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    preparation: Preparation,
    adaptation: Adaptation,
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
    /// It has more values or text than there is room for.
    Large,
    /// The template failed, or took too much work or space.
    Template(String),
}

impl fmt::Display for Unrendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(reason) => write!(f, "the body is not a chat request: {reason}"),
            Self::Content => f.write_str("a message has other content than text"),
            Self::Unsupported(field) => write!(f, "{field} is not supported"),
            Self::Large => f.write_str("the chat has more values or text than are read"),
            Self::Template(reason) => write!(f, "the chat template failed: {reason}"),
        }
    }
}

impl core::error::Error for Unrendered {}

impl ChatTemplate {
    /// Compiles a template. `bos_token` and `eos_token` are the texts of the model's special tokens, or
    /// empty.
    pub fn compile(template: &str, bos_token: &str, eos_token: &str) -> Result<Self, TemplateError> {
        if template.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong(template.len()));
        }
        let source = source::without_extensions(template);
        let has_extensions = source != template;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(syntax_error)?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(python::call_method);
        environment.set_fuel(Some(FUEL.into()));
        environment.add_filter("tojson", json::to_json);
        environment.add_filter("format", python::format_filter);
        environment.add_filter("join", python::join_filter);
        // As in Python: `none` is not iterable.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_function("raise_exception", raise_exception);
        environment.add_template_owned(NAME, source).map_err(syntax_error)?;
        let preparation = Preparation {
            content: ContentFormat::of(template),
            has_developers: ["\"developer\"", "'developer'"].iter().any(|role| template.contains(role)),
        };
        let mut template = Self {
            environment,
            preparation,
            adaptation: Adaptation { merges_systems: true, disabled_effort: "low" },
            bos_token: bos_token.to_owned(),
            eos_token: eos_token.to_owned(),
        };
        template.adaptation = stacker::grow(STACK, || template.adaptation(has_extensions));
        Ok(template)
    }

    /// The text of the prompt of a request to this API, at most `max_bytes` long. `now` is the time since
    /// 1970, in seconds, for templates that print the date, which is that of UTC.
    pub fn render(
        &self,
        api: ChatApi,
        body: &[u8],
        now: i64,
        max_bytes: usize,
    ) -> Result<String, Unrendered> {
        stacker::grow(STACK, || {
            let room = TemplateRoom::new(body);
            let chat = match api {
                ChatApi::Completions => api::completions::read(room.read(body)?),
                ChatApi::Messages => api::messages::read(room.read(body)?, self.adaptation),
                ChatApi::Responses => api::responses::read(room.read(body)?),
            };
            self.render_chat(chat?, &room, now, max_bytes)
        })
    }

    fn render_chat(
        &self,
        chat: Chat,
        room: &TemplateRoom,
        now: i64,
        max_bytes: usize,
    ) -> Result<String, Unrendered> {
        let date = Value::from_function(move |format: String| date(&format, now));
        let special = [
            ("bos_token", Value::from(self.bos_token.as_str())),
            ("eos_token", Value::from(self.eos_token.as_str())),
            ("strftime_now", date),
        ];
        self.render_context(chat.context(self.preparation, special, room)?, max_bytes)
    }

    fn render_context(&self, context: Value, max_bytes: usize) -> Result<String, Unrendered> {
        let template = self.environment.get_template(NAME).map_err(|error| template_error(&error))?;
        let mut text = Bounded { text: Vec::new(), max_bytes };
        template.render_captured_to(context, &mut text).map_err(|error| template_error(&error))?;
        String::from_utf8(text.text).map_err(|error| Unrendered::Template(error.to_string()))
    }

    /// The way in which the server changes requests of Anthropic's API, which vLLM finds by chats of its own
    /// when it starts: it joins system messages if the template refuses a second one or has tags of other
    /// libraries than Jinja, and its effort for disabled thinking is low unless none makes a text of its own.
    fn adaptation(&self, has_extensions: bool) -> Adaptation {
        let room = TemplateRoom::new(&[]);
        let messages = ["system", "user", "system", "user"].map(|role| Message::text(role, "t".to_owned()));
        let chat = Chat { messages: messages.into(), ..Chat::default() };
        // Without the functions and tokens that the server's own rendering has.
        let plain = Preparation { content: ContentFormat::String, has_developers: true };
        let systems =
            chat.context(plain, [], &room).and_then(|context| self.render_context(context, PROBE_BYTES));
        let with_effort = |effort: &str| {
            let reasoning_effort = Some(effort.to_owned());
            let messages = vec![Message::text("user", "Hi".to_owned())];
            let chat = Chat { messages, reasoning_effort, adds_generation_prompt: true, ..Chat::default() };
            self.render_chat(chat, &room, 0, PROBE_BYTES).ok()
        };
        let none = with_effort("none");
        let is_ignored = EFFORTS.iter().any(|effort| with_effort(effort) == none);
        Adaptation {
            merges_systems: has_extensions || systems.is_err(),
            disabled_effort: if none.is_none() || is_ignored { "low" } else { "none" },
        }
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
    if format.len() > MAX_DATE_FORMAT {
        let problem = format!("the format of strftime_now has more than {MAX_DATE_FORMAT} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let failed = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = Timestamp::from_second(now).map_err(failed)?.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &now).map_err(failed)
}
