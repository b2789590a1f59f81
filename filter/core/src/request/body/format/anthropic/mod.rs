//! Anthropic messages: tools, the system text, then role and content of every message, without separators.

mod content;

use std::borrow::Cow;

use content::{Content, ContentReader, Place};

use super::messages::{MessageContent, MessageList};
use crate::json::{self, Array, Object, Pass, Reader, element, key, raw_value, value};
use crate::request::body::field::{IfCount, Scope};
use crate::request::body::json_text::JsonText;
use crate::request::body::object::{Format, Rules};
use crate::request::body::{Fault, Parser};
use crate::request::prompt::{Pieces, Prompt, Text};

#[derive(Default)]
pub(super) struct Messages<'a> {
    tools: Option<Text<'a>>,
    system: Content<'a>,
    messages: Option<Pieces<'a>>,
    max_tokens: Option<u64>,
}

impl<'a> Format<'a> for Messages<'a> {
    const RULES: Rules = Rules {
        follows: Some("v1"),
        serves: |path| path.ends_with("/messages"),
        not_served: "unsupported API endpoint",
        not_an_object: "error unmarshaling request body: ",
        incomplete: "invalid messages request: must have at least one message",
        broken_field: Some("error parsing messages request: "),
        ..Rules::new(Parser::Anthropic, &["messages"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "messages" => self.messages = value(object, MessageList::<Content<'_>>::new(scope))?,
            "system" => self.system = value(object, ContentReader { scope, place: Place::System })?,
            "tools" => self.tools = value(object, Tools { scope })?,
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let messages = self.messages?;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        if let Some(tools) = self.tools {
            pieces.text(tools);
        }
        self.system.append_to(&mut pieces);
        pieces.append(messages);
        Some(Prompt::one(pieces))
    }
}

/// An array of tools; its JSON, or `None` if it is empty.
struct Tools<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for Tools<'_, '_> {
    type Value = Option<Text<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("tools must be an array"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let scope = self.scope;
        let mut json = JsonText::new(scope.options.keep_bytes);
        let mut start = r#"[{"name":"#;
        while element(&mut array, ToolReader { scope, json: &mut json, start })?.is_some() {
            start = r#",{"name":"#;
        }
        if json.is_empty() {
            return Ok(None);
        }
        json.json("]");
        Ok(Some(json.finish()))
    }
}

/// Appends a tool to `json`, after `start`.
struct ToolReader<'s, 'c> {
    scope: &'s Scope<'c>,
    json: &'s mut JsonText,
    start: &'static str,
}

impl<'a> Reader<'a> for ToolReader<'_, '_> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("a tool must be an object"));
        self.null();
    }

    fn null(self) {
        ToolFields::default().write(self.start, self.json);
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<()> {
        let scope = self.scope;
        let mut tool = ToolFields::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "name" => tool.name = value(&mut object, scope.json("a tool's name must be a string"))?,
                "description" => {
                    tool.description =
                        value(&mut object, scope.json("a tool's description must be a string"))?;
                }
                "input_schema" => tool.input_schema = Some(raw_value(&mut object)?),
                "strict" => tool.strict = value(&mut object, Flag { scope })?,
                "defer_loading" => tool.defer_loading = value(&mut object, Flag { scope })?,
                _ => value(&mut object, Pass)?,
            }
        }
        tool.write(self.start, self.json);
        Ok(())
    }
}

#[derive(Default)]
struct ToolFields<'a> {
    name: Option<Text<'a>>,
    description: Option<Text<'a>>,
    input_schema: Option<Cow<'a, str>>,
    strict: Option<bool>,
    defer_loading: Option<bool>,
}

impl ToolFields<'_> {
    fn write(&self, start: &str, json: &mut JsonText) {
        json.json(start);
        match &self.name {
            Some(name) => json.part(name),
            None => json.json(r#""""#),
        }
        if let Some(description) = &self.description {
            json.json(r#","description":"#);
            json.part(description);
        }
        if let Some(schema) = &self.input_schema {
            json.json(r#","input_schema":"#);
            json.compact(schema);
        }
        for (name, flag) in [(r#","strict":"#, self.strict), (r#","defer_loading":"#, self.defer_loading)] {
            if let Some(flag) = flag {
                json.json(name);
                json.json(if flag { "true" } else { "false" });
            }
        }
        json.json("}");
    }
}

/// A boolean, or null for none.
struct Flag<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl Reader<'_> for Flag<'_, '_> {
    type Value = Option<bool>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a tool's strict and defer_loading must be true or false"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn boolean(self, value: bool) -> Self::Value {
        Some(value)
    }
}
