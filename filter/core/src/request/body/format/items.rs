//! APIs whose prompt is JSON: responses and conversations.

use crate::json::{self, Array, Object, Pass, Reader, Str, element, key, value};
use crate::request::body::canonical;
use crate::request::body::field::{IfCount, IfString, Kind, Scope, Typed};
use crate::request::body::json_text::JsonText;
use crate::request::body::object::{Format, Rules};
use crate::request::body::{Fault, Parser};
use crate::request::prompt::{Pieces, Prompt, Text};
use crate::request::stored::{ServerState, StoredId};

/// The prompt is an array of up to three objects, each with one of the fields.
#[derive(Default)]
pub(super) struct Responses<'a> {
    instructions: Option<Text<'a>>,
    tools: Option<Text<'a>>,
    input: Option<Text<'a>>,
    max_output_tokens: Option<u64>,
    previous: Option<StoredId>,
    conversation: Option<StoredId>,
    /// The server is asked not to store the response.
    is_not_stored: bool,
}

impl<'a> Format<'a> for Responses<'a> {
    const RULES: Rules = Rules {
        incomplete: "invalid responses request: must have input field",
        ..Rules::new(Parser::OpenAi, &["responses"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        let field = match name {
            "instructions" => &mut self.instructions,
            "tools" => &mut self.tools,
            "input" => &mut self.input,
            "max_output_tokens" => {
                self.max_output_tokens = value(object, IfCount)?;
                return Ok(());
            }
            "previous_response_id" => {
                self.previous = value(object, IfString)?.and_then(|id| StoredId::of(&id));
                return Ok(());
            }
            "conversation" => {
                self.conversation = value(object, ConversationId)?;
                return Ok(());
            }
            "store" => {
                self.is_not_stored = value(object, IsFalse)?;
                return Ok(());
            }
            _ => return value(object, Pass),
        };
        let text = canonical::member(object, scope)?;
        *field = (!canonical::is_null(&text)).then_some(text);
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    fn state(&self) -> ServerState {
        ServerState { continues: self.previous.or(self.conversation), is_stored: !self.is_not_stored }
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let input = self.input?;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        let fields = [
            (r#"{"instructions":"#, self.instructions),
            (r#"{"tools":"#, self.tools),
            (r#"{"input":"#, Some(input)),
        ];
        let mut before = "[";
        for (start, text) in fields {
            let Some(text) = text else { continue };
            pieces.text(Text::borrowed(before));
            pieces.text(Text::borrowed(start));
            pieces.text(text);
            pieces.text(Text::borrowed("}"));
            before = ",";
        }
        pieces.text(Text::borrowed("]"));
        Some(Prompt::one(pieces))
    }
}

/// The id of a conversation, or an object with it.
struct ConversationId;

impl<'a> Reader<'a> for ConversationId {
    type Value = Option<StoredId>;

    fn other(self) -> Self::Value {
        None
    }

    fn string(self, id: Str<'a, '_>) -> Self::Value {
        StoredId::of(&id)
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut id = None;
        while let Some(name) = key(&mut object)? {
            match &*name {
                "id" => id = value(&mut object, IfString)?.and_then(|id| StoredId::of(&id)),
                _ => value(&mut object, Pass)?,
            }
        }
        Ok(id)
    }
}

/// Whether the value is `false`.
struct IsFalse;

impl Reader<'_> for IsFalse {
    type Value = bool;

    fn other(self) -> bool {
        false
    }

    fn boolean(self, value: bool) -> bool {
        !value
    }
}

/// The prompt is the array of items, each reduced to its type, role and content.
#[derive(Default)]
pub(super) struct Conversations<'a> {
    /// `None` if there are no items.
    items: Option<Text<'a>>,
}

impl<'a> Format<'a> for Conversations<'a> {
    const RULES: Rules = Rules {
        is_generation: false,
        incomplete: "invalid conversations request: must have items field",
        ..Rules::new(Parser::OpenAi, &["conversations"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "items" => self.items = value(object, Items { scope })?,
            "metadata" => {
                value(object, Typed { scope, kind: Kind::Object, rule: "metadata must be an object" })?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn state(&self) -> ServerState {
        ServerState { continues: None, is_stored: true }
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        pieces.text(self.items?);
        Some(Prompt::one(pieces))
    }
}

struct Items<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for Items<'_, '_> {
    type Value = Option<Text<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("items must be an array"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let mut json = JsonText::new(self.scope.options.keep_bytes);
        let mut before = "[";
        loop {
            let mut item = ItemFields::default();
            if element(&mut array, ItemReader { scope: self.scope, fields: &mut item })?.is_none() {
                break;
            }
            json.json(before);
            let mut before_field = "{";
            for (name, text) in
                [(r#""type":"#, item.kind), (r#""role":"#, item.role), (r#""content":"#, item.content)]
            {
                let Some(text) = text else { continue };
                json.json(before_field);
                json.json(name);
                json.part(&text);
                before_field = ",";
            }
            json.json(if before_field == "{" { "{}" } else { "}" });
            before = ",";
        }
        if before == "[" {
            return Ok(None);
        }
        json.json("]");
        Ok(Some(json.finish()))
    }
}

/// The JSON of an item's fields; `None` for empty fields.
#[derive(Default)]
struct ItemFields<'a> {
    kind: Option<Text<'a>>,
    role: Option<Text<'a>>,
    content: Option<Text<'a>>,
}

/// Reads into the fields of an empty item: in a hostile body every third byte may begin one.
struct ItemReader<'s, 'c, 'a> {
    scope: &'s Scope<'c>,
    fields: &'s mut ItemFields<'a>,
}

impl<'a> Reader<'a> for ItemReader<'_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("an item must be an object"));
    }

    fn null(self) {}

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<()> {
        let Self { scope, fields: item } = self;
        while let Some(name) = key(&mut object)? {
            let field = match &*name {
                "type" => &mut item.kind,
                "role" => &mut item.role,
                "content" => {
                    let content = canonical::member(&mut object, scope)?;
                    item.content = (!canonical::is_null(&content)).then_some(content);
                    continue;
                }
                _ => {
                    value(&mut object, Pass)?;
                    continue;
                }
            };
            let rule = "an item's type and role must be strings";
            *field = value(&mut object, scope.json(rule))?;
        }
        Ok(())
    }
}
