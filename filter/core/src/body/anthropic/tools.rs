//! Tools as the EPP encodes them: known fields in a fixed order, the schema letter by letter.

use serde::de::{MapAccess, SeqAccess};

use crate::body::field::Scope;
use crate::body::json_text::{JsonField, JsonText};
use crate::json::{self, Pass, Reader, element, key, value};
use crate::body::Fault;
use crate::prompt::Text;

/// An array of tools; gives its JSON unless it is empty.
pub(super) struct Tools<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for Tools<'_, '_, 'a> {
    type Value = Option<Text<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("tools must be an array"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut json = JsonText::new(self.scope.options.keep_bytes);
        let mut before = "[";
        while let Some(tool) = element(&mut array, ToolReader { scope: self.scope })? {
            json.json(before);
            tool.write(&mut json);
            before = ",";
        }
        if before == "[" {
            return Ok(None);
        }
        json.json("]");
        Ok(Some(json.finish()))
    }
}

#[derive(Default)]
struct Tool<'a> {
    name: Option<Text<'a>>,
    description: Option<Text<'a>>,
    input_schema: Option<&'a str>,
    strict: Option<bool>,
    defer_loading: Option<bool>,
}

impl Tool<'_> {
    fn write(&self, json: &mut JsonText) {
        json.json(r#"{"name":"#);
        match &self.name {
            Some(name) => json.part(name),
            None => json.json(r#""""#),
        }
        if let Some(description) = &self.description {
            json.json(r#","description":"#);
            json.part(description);
        }
        if let Some(schema) = self.input_schema {
            json.json(r#","input_schema":"#);
            json.compact(schema);
        }
        for (name, flag) in [("strict", self.strict), ("defer_loading", self.defer_loading)] {
            if let Some(flag) = flag {
                json.json(",\"");
                json.json(name);
                json.json(if flag { "\":true" } else { "\":false" });
            }
        }
        json.json("}");
    }
}

struct ToolReader<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for ToolReader<'_, '_, 'a> {
    type Value = Tool<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a tool must be an object"));
        Tool::default()
    }

    fn null(self) -> Self::Value {
        Tool::default()
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let scope = self.scope;
        let text = |rule| JsonField { scope, rule };
        let mut tool = Tool::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "name" => tool.name = value(&mut object, text("a tool's name must be a string"))?,
                "description" => {
                    tool.description = value(&mut object, text("a tool's description must be a string"))?;
                }
                "input_schema" => {
                    value(&mut object, Pass)?;
                    tool.input_schema = json::span_of_member(scope.text, &name).map(|span| &scope.text[span]);
                }
                "strict" => tool.strict = value(&mut object, Flag { scope })?,
                "defer_loading" => tool.defer_loading = value(&mut object, Flag { scope })?,
                _ => value(&mut object, Pass)?,
            }
        }
        Ok(tool)
    }
}

/// A boolean, or null for none.
struct Flag<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl Reader<'_> for Flag<'_, '_, '_> {
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
