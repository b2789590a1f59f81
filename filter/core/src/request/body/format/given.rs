//! A prompt that is one string, one list of token ids, or several of either.

use crate::json::{self, Array, Number, Reader, Str, element, next_number, pass_array};
use crate::request::body::Fault;
use crate::request::body::field::Scope;
use crate::request::body::json_text::JsonText;
use crate::request::prompt::{BYTES_PER_TOKEN, MIN_PROMPT, Part, Pieces, Prompt, Text, WHOLE_PROMPTS};

/// The first of `count` token ids.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) ids: Vec<u32>,
    pub(super) count: u64,
}

impl Ids {
    /// Keeps the id if fewer than `room` are kept.
    pub(super) fn add(&mut self, id: u32, room: usize) {
        self.count += 1;
        if self.ids.len() < room {
            self.ids.push(id);
        }
    }
}

/// The prompt that the client sent; never empty.
pub(super) enum Given<'a> {
    Text(Text<'a>),
    Ids(Ids),
    /// The kept prompts, and the tokens of all prompts.
    Several {
        parts: Vec<Part<'a>>,
        tokens: u64,
    },
}

impl<'a> Given<'a> {
    pub(super) fn prompt(self, scope: &Scope<'_>) -> Prompt<'a> {
        let limit = scope.options.keep_bytes;
        let mut pieces = Pieces::new(limit);
        match self {
            Given::Text(text) => pieces.text(text),
            Given::Ids(Ids { ids, count }) => pieces.ids(ids, count),
            Given::Several { parts, tokens } => return Prompt::several(parts, limit, tokens),
        }
        Prompt::one(pieces)
    }
}

/// Use of the strings of a prompt.
pub(super) trait Strings<'a>: Default {
    /// Reads the only string, which is not in an array.
    fn only(text: Str<'a, '_>, scope: &Scope<'_>) -> Text<'a>;

    /// Reads the next string of an array.
    fn add(&mut self, text: Str<'a, '_>, scope: &Scope<'_>);

    /// The prompt of all strings of the array.
    fn given(self) -> Given<'a>;
}

pub(super) struct GivenReader<'s, 'c, S> {
    pub(super) scope: &'s Scope<'c>,
    pub(super) strings: S,
}

const RULE: &str = "must be a string, an array of strings, an array of token ids, or an array of such arrays";

impl<'a, S: Strings<'a>> Reader<'a> for GivenReader<'_, '_, S> {
    type Value = Option<Given<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field(RULE));
        None
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        (!value.is_empty()).then(|| Given::Text(S::only(value, self.scope)))
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let Self { scope, mut strings } = self;
        let room = scope.options.keep_bytes / BYTES_PER_TOKEN;
        let (mut ids, mut lists) = (Ids::default(), Several::new(scope));
        // All elements must have the type of the first.
        let mut first = None;
        loop {
            let item = Element { scope, strings: &mut strings, room: room.min(lists.room / BYTES_PER_TOKEN) };
            let Some(item) = element(&mut array, item)? else { break };
            let kind = core::mem::discriminant(&item);
            match item {
                _ if *first.get_or_insert(kind) != kind => {
                    pass_array(array)?;
                    return Ok(Self { scope, strings }.other());
                }
                PromptElement::Text => {}
                PromptElement::Id(id) => {
                    ids.add(id, room);
                    // Most lists have thousands of ids, so the others are read without the cases above.
                    while let Some(id) = next_number(&mut array, IfTokenId)? {
                        let Some(id) = id else {
                            pass_array(array)?;
                            return Ok(Self { scope, strings }.other());
                        };
                        ids.add(id, room);
                    }
                    break;
                }
                PromptElement::Ids(Ids { ids, count }) => lists.add(Part::Ids { ids, count }, count),
                PromptElement::Other => {
                    pass_array(array)?;
                    return Ok(Self { scope, strings }.other());
                }
            }
        }
        Ok(match first {
            None => None,
            Some(_) if ids.count > 0 => Some(Given::Ids(ids)),
            Some(_) if lists.count > 0 => Some(lists.given()),
            Some(_) => Some(strings.given()),
        })
    }
}

/// Several prompts. The first are kept, within the bound for all.
pub(super) struct Several<'a> {
    parts: Vec<Part<'a>>,
    count: u64,
    tokens: u64,
    limit: usize,
    room: usize,
}

impl<'a> Several<'a> {
    fn new(scope: &Scope<'_>) -> Self {
        let limit = scope.options.keep_bytes;
        Self { parts: Vec::new(), count: 0, tokens: 0, limit, room: limit.saturating_mul(WHOLE_PROMPTS) }
    }

    fn add(&mut self, part: Part<'a>, tokens: u64) {
        self.count += 1;
        self.tokens += tokens;
        if self.room > 0 {
            self.room = self.room.saturating_sub(part.kept_bytes().min(self.limit).max(MIN_PROMPT));
            self.parts.push(part);
        }
    }

    fn given(self) -> Given<'a> {
        Given::Several { parts: self.parts, tokens: self.tokens }
    }
}

/// Strings that are independent prompts.
#[derive(Default)]
pub(super) struct Prompts<'a> {
    several: Option<Several<'a>>,
}

impl<'a> Strings<'a> for Prompts<'a> {
    fn only(text: Str<'a, '_>, scope: &Scope<'_>) -> Text<'a> {
        scope.text_of(text)
    }

    fn add(&mut self, text: Str<'a, '_>, scope: &Scope<'_>) {
        let text = scope.text_of(text);
        let tokens = text.bytes.div_ceil(BYTES_PER_TOKEN as u64);
        self.several.get_or_insert_with(|| Several::new(scope)).add(Part::Text(text), tokens);
    }

    fn given(self) -> Given<'a> {
        self.several.map_or_else(|| Given::Text(Text::default()), Several::given)
    }
}

/// Strings that the EPP encodes to JSON: its own structure, with the names of its fields in Go.
#[derive(Default)]
pub(super) struct Encoded {
    json: Option<JsonText>,
}

impl<'a> Strings<'a> for Encoded {
    fn only(text: Str<'a, '_>, scope: &Scope<'_>) -> Text<'a> {
        let mut json = JsonText::new(scope.options.keep_bytes);
        json.json(r#"{"Raw":"#);
        json.string(&text);
        json.json(r#","Strings":null,"TokenIDs":null}"#);
        json.finish()
    }

    fn add(&mut self, text: Str<'a, '_>, scope: &Scope<'_>) {
        let json = self.json.get_or_insert_with(|| JsonText::new(scope.options.keep_bytes));
        json.json(if json.is_empty() { r#"{"Raw":"","Strings":["# } else { "," });
        json.string(&text);
    }

    fn given(self) -> Given<'a> {
        let mut json = self.json.unwrap_or_else(|| JsonText::new(0));
        json.json(r#"],"TokenIDs":null}"#);
        Given::Text(json.finish())
    }
}

/// An element of a prompt array.
enum PromptElement {
    /// A string; [`Strings`] has read it.
    Text,
    Id(u32),
    Ids(Ids),
    Other,
}

struct Element<'e, 's, 'c, S> {
    scope: &'s Scope<'c>,
    strings: &'e mut S,
    /// Maximum number of ids that are kept of an array of token ids.
    room: usize,
}

impl<'a, S: Strings<'a>> Reader<'a> for Element<'_, '_, '_, S> {
    type Value = PromptElement;

    fn other(self) -> PromptElement {
        PromptElement::Other
    }

    fn number(self, value: Number) -> PromptElement {
        token_id(value).map_or(PromptElement::Other, PromptElement::Id)
    }

    fn string(self, value: Str<'a, '_>) -> PromptElement {
        self.strings.add(value, self.scope);
        PromptElement::Text
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<PromptElement> {
        let mut ids = Ids::default();
        while let Some(id) = next_number(&mut array, IfTokenId)? {
            let Some(id) = id else {
                pass_array(array)?;
                return Ok(PromptElement::Other);
            };
            ids.add(id, self.room);
        }
        Ok(PromptElement::Ids(ids))
    }
}

struct IfTokenId;

impl Reader<'_> for IfTokenId {
    type Value = Option<u32>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, value: Number) -> Self::Value {
        token_id(value)
    }
}

/// The number as a token id, if it is an integer from 0 to 2³²−1 in any spelling.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with the original")]
#[expect(clippy::float_cmp, reason = "exactly representable or not")]
pub(super) fn token_id(number: Number) -> Option<u32> {
    if let Number::Unsigned(number) = number {
        return u32::try_from(number).ok();
    }
    let number = number.as_f64();
    let id = number as u32;
    (f64::from(id) == number).then_some(id)
}
