//! Properties of a template's source.

use std::collections::{HashMap, HashSet};

/// How a template reads the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// As a string: vLLM joins the texts of several parts by line ends.
    String,
    /// As a list of parts: vLLM makes one of a string.
    Parts,
}

/// Maximum length of a chain of variables that are assigned to each other.
const MAX_CHAIN: usize = 16;

/// Bytes of a call in which its arguments are searched.
const MAX_CALL: usize = 1024;

impl ContentFormat {
    /// The format, as vLLM finds it: a list if the template has a loop over the content of a message, over a
    /// macro's parameter that is called with the content of a message, or outside of macros over a variable
    /// named `content`.
    pub(crate) fn of(template: &str) -> Self {
        let source = Statements::read(template);
        let lists = source.assigned_from("messages");
        let are_messages = |over: &str| lists.get(word(over)).is_some_and(|list| is_access(over, list, None));
        let messages: HashSet<&str> =
            source.loops.iter().filter(|it| are_messages(it.over)).map(|it| it.item).collect();
        let is_content = |expression: &str| {
            let message = messages.get(word(expression));
            message.is_some_and(|message| is_access(expression, message, Some("content")))
        };
        let contents = source.parameters_with(is_content);
        let is_over_content = |it: &Loop<'_>| {
            is_content(it.over)
                || it.within.map_or(it.over == "content", |within| contents.contains(&(within, it.over)))
        };
        if source.loops.iter().any(is_over_content) { Self::Parts } else { Self::String }
    }
}

/// The template without the tags of transformers' extension, which mark what a model has generated and print
/// nothing.
pub(crate) fn without_extensions(template: &str) -> String {
    let (mut source, mut from) = (String::with_capacity(template.len()), 0);
    for mark in code(template).filter(|code| code.is_tag) {
        let replacement = match mark.text {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        source.push_str(template.get(from..mark.at).unwrap_or_default());
        source.push_str(replacement);
        from = mark.at + mark.text.len();
    }
    source.push_str(template.get(from..).unwrap_or_default());
    source
}

/// The statements of a template that decide about its format.
#[derive(Default)]
struct Statements<'a> {
    /// The variable and the expression of each assignment.
    assignments: Vec<(&'a str, &'a str)>,
    loops: Vec<Loop<'a>>,
    /// The parameters of macros, by the names of the macros.
    macros: HashMap<&'a str, Vec<&'a str>>,
    /// The code of all tags and expressions.
    code: Vec<&'a str>,
}

/// A loop over an expression.
struct Loop<'a> {
    item: &'a str,
    over: &'a str,
    /// The macro that it is in.
    within: Option<&'a str>,
}

impl<'a> Statements<'a> {
    fn read(template: &'a str) -> Self {
        let mut source = Self::default();
        let mut within = None;
        for TagCode { text, is_tag, .. } in code(template) {
            source.code.push(text);
            let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            match keyword {
                "set" if is_tag => {
                    let assignment = rest.split_once('=').map(|(to, from)| (to.trim(), from.trim()));
                    source.assignments.extend(assignment);
                }
                "for" if is_tag => {
                    if let Some((item, over)) = rest.split_once(" in ") {
                        let over = over.split_once(" if ").map_or(over, |(over, _)| over).trim();
                        source.loops.push(Loop { item: item.trim(), over, within });
                    }
                }
                "macro" if is_tag => {
                    if let Some((name, parameters)) = rest.split_once('(') {
                        let name_of = |parameter: &'a str| word(parameter);
                        within = Some(name.trim());
                        let parameters = arguments(parameters).into_iter().map(name_of).collect();
                        source.macros.insert(name.trim(), parameters);
                    }
                }
                "endmacro" if is_tag => within = None,
                _ => {}
            }
        }
        source
    }

    /// The variables that have the value of another one, or a part of it.
    fn assigned_from(&self, name: &'a str) -> HashSet<&'a str> {
        let mut variables = HashSet::from([name]);
        for _ in 0..MAX_CHAIN {
            let before = variables.len();
            for (to, from) in &self.assignments {
                let variable = variables.get(word(from));
                if variable.is_some_and(|variable| is_access(from, variable, None)) {
                    variables.insert(*to);
                }
            }
            if variables.len() == before {
                break;
            }
        }
        variables
    }

    /// The parameters of macros that are called with such an argument, with the names of the macros.
    fn parameters_with(&self, is_sought: impl Fn(&str) -> bool) -> HashSet<(&'a str, &'a str)> {
        let mut found = HashSet::new();
        let calls =
            self.code.iter().flat_map(|code| code.match_indices('(').map(move |(at, _)| code.split_at(at)));
        for (before, call) in calls {
            let start = before.rfind(|character| !is_word(character)).map_or(0, |at| at + 1);
            let called = self.macros.get_key_value(before.get(start..).unwrap_or_default());
            let Some((name, parameters)) = called else { continue };
            for (place, argument) in arguments(call.get(1..).unwrap_or_default()).into_iter().enumerate() {
                let by_name = argument.split_once('=').and_then(|(name, value)| {
                    let parameter = parameters.iter().find(|parameter| **parameter == name.trim());
                    Some((*parameter?, value))
                });
                let (parameter, value) = match by_name {
                    Some((parameter, value)) => (Some(parameter), value),
                    None => (parameters.get(place).copied(), argument),
                };
                found.extend(
                    parameter.filter(|_| is_sought(value.trim())).map(|parameter| (*name, parameter)),
                );
            }
        }
        found
    }
}

/// Whether an expression is this variable, or its member `key`, also behind slices, filters and a test.
fn is_access(expression: &str, variable: &str, key: Option<&str>) -> bool {
    let after_word = |text: &'_ str, expected: &str| -> Option<usize> {
        (word(text) == expected).then_some(expected.len())
    };
    let Some(mut rest) = after_word(expression, variable).and_then(|end| expression.get(end..)) else {
        return false;
    };
    if let Some(key) = key {
        let member = rest.strip_prefix('.').and_then(|rest| rest.get(after_word(rest, key)?..));
        let quoted = [format!("['{key}']"), format!("[\"{key}\"]")];
        let item = || quoted.iter().find_map(|quoted| rest.strip_prefix(quoted.as_str()));
        let Some(behind) = member.or_else(item) else { return false };
        rest = behind;
    }
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return true;
        }
        if let Some(test) = rest.strip_prefix("is ") {
            let test = test.trim_start();
            let test = test.strip_prefix("not ").unwrap_or(test).trim_start();
            return word(test).len() == test.len();
        }
        let behind = if let Some(filter) = rest.strip_prefix('|') {
            let filter = filter.trim_start();
            let behind = filter.get(word(filter).len()..).unwrap_or_default();
            behind
                .strip_prefix('(')
                .map_or(Some(behind), |arguments| bracketed(arguments).map(|(_, behind)| behind))
        } else {
            let slice = rest.strip_prefix('[').and_then(bracketed);
            slice.filter(|(slice, _)| slice.contains(':')).map(|(_, behind)| behind)
        };
        let Some(behind) = behind else { return false };
        rest = behind;
    }
}

/// The word with which a text begins.
fn word(text: &str) -> &str {
    text.find(|character| !is_word(character)).and_then(|end| text.get(..end)).unwrap_or(text)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The text up to the end of an open bracket, and the text behind it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let end = unquoted(text).find_map(|(at, character)| {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Some(at),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        None
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// The arguments of a call or the parameters of a macro, after its open bracket.
fn arguments(call: &str) -> Vec<&str> {
    let (mut arguments, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    // Before quotes are read: a string may be as long as the template.
    let end = (0..=MAX_CALL.min(call.len())).rev().find(|&end| call.is_char_boundary(end));
    let call = call.get(..end.unwrap_or_default()).unwrap_or_default();
    for (at, character) in unquoted(call) {
        let ends = depth == 0 && matches!(character, ',' | ')' | ']' | '}');
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if ends {
            arguments.extend(call.get(from..at).map(str::trim).filter(|argument| !argument.is_empty()));
            from = at + 1;
            if character != ',' {
                break;
            }
        }
    }
    arguments
}

/// The characters of a code that are not in a string, with their places.
fn unquoted(code: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut is_escaped) = (None, false);
    code.char_indices().filter(move |(_, character)| {
        let is_in_string = quote.is_some();
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if *character == '\\' => is_escaped = true,
            Some(end) if end == *character => quote = None,
            None if matches!(character, '"' | '\'') => quote = Some(*character),
            Some(_) | None => {}
        }
        !is_in_string
    })
}

/// The code of a tag or an expression, without its delimiters and blanks.
#[derive(Clone, Copy)]
struct TagCode<'a> {
    at: usize,
    text: &'a str,
    is_tag: bool,
}

/// The `{% … %}` tags and `{{ … }}` expressions of a template.
fn code(template: &str) -> impl Iterator<Item = TagCode<'_>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        loop {
            let rest = template.get(from..)?;
            let (start, opening) = rest.match_indices('{').find_map(|(at, _)| {
                let opening = rest.get(at..at + 2)?;
                ["{%", "{{", "{#"].contains(&opening).then_some((from + at + 2, opening))
            })?;
            let inner = template.get(start..)?;
            if opening == "{#" {
                from = start + inner.find("#}")? + 2;
                continue;
            }
            let closing = if opening == "{%" { "%}" } else { "}}" };
            let mut ends = unquoted(inner)
                .filter(|(at, _)| inner.get(*at..).is_some_and(|end| end.starts_with(closing)));
            let (end, _) = ends.next()?;
            from = start + end + 2;
            let inner = inner.get(..end)?;
            let text = inner.trim_start_matches(['-', '+']).trim_start();
            let at = start + inner.len() - text.len();
            let text = text.trim_end_matches(['-', '+']).trim_end();
            return Some(TagCode { at, text, is_tag: opening == "{%" });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each was given to vLLM 0.32.
    #[test]
    fn a_loop_over_the_content_of_a_message_reads_parts() {
        use ContentFormat::{Parts, String};

        let over_messages = |body: &str| format!("{{% for m in messages %}}{body}{{% endfor %}}");
        for (body, expected) in [
            ("{{ m.content }}", String),
            ("{%- for c in m['content'] -%}{% endfor %}", Parts),
            ("{% for c in m.content if c.type == 'text' %}{% endfor %}", Parts),
            ("{% for c in m.content | reverse %}{% endfor %}", Parts),
            ("{% for c in m.content[1:] %}{% endfor %}", Parts),
            ("{% for c in m.contents %}{% endfor %}", String),
            ("{% for c in m.content.split('x') %}{% endfor %}", String),
            ("{% for c in m.content[0] %}{% endfor %}", String),
            ("{% for c in m.tool_calls %}{% endfor %}", String),
            ("{% set content = m.content %}{% for c in content %}{% endfor %}", Parts),
            ("{% set text = m.content %}{% for c in text %}{% endfor %}", String),
            ("{% for c in content | list %}{% endfor %}", String),
            ("{{ '%}{% for c in m.content %}' }}", String),
            ("{# {% for c in m.content %}{% endfor %} #}", String),
            ("{% for c in m[\"content\"] | selectattr('type', 'equalto', 'text') %}{% endfor %}", Parts),
        ] {
            assert_eq!(ContentFormat::of(&over_messages(body)), expected, "{body}");
        }
        for (template, expected) in [
            ("", String),
            (
                "{% set rest = messages[1:] %}{% set all = rest | list %}{% for m in all %}{% for c in m.content %}{% endfor %}{% endfor %}",
                Parts,
            ),
            (
                "{% set ns = namespace(x=1) %}{% for m in messages[1:] %}{% for c in m.content %}{% endfor %}{% endfor %}",
                Parts,
            ),
            (
                "{% macro f(a, b=1) %}{% for c in a %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) }}{% endfor %}",
                Parts,
            ),
            (
                "{% macro f(a, b=1) %}{% for c in b %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(1, m['content']) }}{% endfor %}",
                Parts,
            ),
            (
                "{% macro f(a, b=1) %}{% for c in b %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{% set x = f(1, b=m.content|list) %}{% endfor %}",
                Parts,
            ),
            (
                "{% macro f(a, b=1) %}{% for c in b %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) }}{% endfor %}",
                String,
            ),
            (
                "{% macro f(content) %}{% for c in content %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.tool_calls) }}{% endfor %}",
                String,
            ),
            (
                "{% macro f(content) %}{% for c in content %}{{ c }}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content, '(') }}{% endfor %}",
                Parts,
            ),
            ("{% for content in documents %}{% for c in content %}{% endfor %}{% endfor %}", Parts),
        ] {
            assert_eq!(ContentFormat::of(template), expected, "{template}");
        }
    }

    #[test]
    fn the_search_in_a_hostile_template_ends_soon() {
        let calls = format!(
            "{{% macro f(c) %}}{{% for x in c %}}{{% endfor %}}{{% endmacro %}}{{{{ {} }}}}",
            "f(".repeat(100_000)
        );
        let chain = (0..9_000).map(|n| format!("{{% set v{} = v{n} %}}", n + 1)).collect::<Vec<_>>().concat();
        for template in
            [calls, chain, "{".repeat(250_000), "{{ '".repeat(60_000), "{% for m in messages[".repeat(9_000)]
        {
            assert_eq!(ContentFormat::of(&template), ContentFormat::String);
        }
    }

    #[test]
    fn marks_of_generated_text_are_left_out() {
        assert_eq!(
            without_extensions("a{%- generation -%}b{% endgeneration %}{{ generation }}"),
            "a{%- if true -%}b{% endif %}{{ generation }}"
        );
    }
}
