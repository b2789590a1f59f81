//! Methods and formats of Python, within bounds that minijinja does not set. It takes fuel for a text after
//! it has made it, which is too late where one call repeats an argument or a blank, and none for what a
//! method only reads.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Maximum width and precision of a formatted value.
const MAX_WIDTH: usize = 1024;

/// Fuel for a formatted value, as minijinja takes it.
const FIELD_FUEL: u64 = 4;

/// Bytes for which one fuel is taken, as minijinja takes it.
const FUEL_BYTES: usize = 64;

/// Bytes of an item of a list, as minijinja counts them.
const ITEM_BYTES: usize = 32;

/// Calls a method of a text, a list or an object.
pub(crate) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    for list in arguments.iter().chain([value]) {
        if matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable) {
            pay_for_items(state, list, None)?;
        }
    }
    let Some(text) = value.as_str() else { return unknown_method_callback(state, value, method, arguments) };
    let argument = arguments.first().and_then(Value::as_str);
    match method {
        "format" => return format_fields(state, FormatStyle::StrFormat, text, arguments),
        // Each end is compared with each of the characters.
        "strip" | "lstrip" | "rstrip" => {
            pay(state, text.len().saturating_mul(argument.map_or(1, str::len)))?;
        }
        "split" => {
            let parts = match argument {
                Some(separator) => text.matches(separator).count(),
                None => text.split_whitespace().count(),
            };
            pay(state, text.len() + ITEM_BYTES * parts)?;
        }
        "splitlines" => pay(state, text.len() + ITEM_BYTES * text.lines().count())?,
        "startswith" | "endswith" | "join" => {}
        _ => pay(state, text.len())?,
    }
    unknown_method_callback(state, value, method, arguments)
}

/// `text | format(…)`, Python's `%`.
pub(crate) fn format_filter(
    state: &mut State<'_, '_>,
    text: &str,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    format_fields(state, FormatStyle::Printf, text, &arguments.into_values())
}

/// `list | join(…)`.
pub(crate) fn join_filter(
    state: &mut State<'_, '_>,
    list: &Value,
    separator: Option<StringInput<'_>>,
    attribute: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    if !list.is_undefined() {
        pay_for_items(state, list, attribute.or(options.peek("attribute").ok()))?;
    }
    filters::join(state, list, separator, attribute, options)
}

/// Formats one field at a time, and takes fuel for it before the next one, which may have the same argument.
fn format_fields(
    state: &State<'_, '_>,
    style: FormatStyle,
    text: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let mut formatted = String::new();
    // The number of arguments that fields without a name have taken.
    let mut taken = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, is_field) = next_piece(style, rest);
        rest = rest.get(piece.len()..).unwrap_or_default();
        if is_field {
            check_width(style, piece)?;
        }
        let part = match style {
            _ if !is_field => format(style, piece, arguments)?,
            FormatStyle::StrFormat if piece.starts_with("{:") || piece.starts_with("{}") => {
                taken += 1;
                let numbered = format!("{{{}{}", taken - 1, piece.get(1..).unwrap_or_default());
                format(style, &numbered, arguments)?
            }
            FormatStyle::Printf if !piece.starts_with("%(") => {
                taken += 1;
                format(style, piece, arguments.get(taken - 1..).unwrap_or_default())?
            }
            FormatStyle::StrFormat | FormatStyle::Printf => format(style, piece, arguments)?,
        };
        state.consume_fuel(FIELD_FUEL)?;
        pay(state, part.len())?;
        formatted.push_str(&part);
    }
    Ok(Value::from(formatted))
}

/// The text before the next field, or that field.
fn next_piece(style: FormatStyle, text: &str) -> (&str, bool) {
    let opening = match style {
        FormatStyle::StrFormat => '{',
        FormatStyle::Printf => '%',
    };
    let (end, is_field) = match text.find(opening) {
        None => (None, false),
        Some(0) if text.get(1..).is_some_and(|rest| rest.starts_with(opening)) => (Some(2), false),
        Some(0) => (field_end(style, text), true),
        Some(start) => (Some(start), false),
    };
    (end.and_then(|end| text.get(..end)).unwrap_or(text), is_field)
}

/// The end of the field with which a text begins.
fn field_end(style: FormatStyle, text: &str) -> Option<usize> {
    match style {
        FormatStyle::StrFormat => Some(text.find('}')? + 1),
        FormatStyle::Printf => {
            let key = if text.starts_with("%(") { text.find(')')? } else { 0 };
            // These letters are lengths in C, and have no meaning.
            let is_type = |letter: char| letter.is_ascii_alphabetic() && !matches!(letter, 'h' | 'l' | 'L');
            Some(key + text.get(key..)?.find(is_type)? + 1)
        }
    }
}

fn check_width(style: FormatStyle, field: &str) -> Result<(), Error> {
    let specification = match style {
        FormatStyle::StrFormat => field.split_once(':').map_or("", |(_, specification)| specification),
        FormatStyle::Printf => field.rsplit_once(')').map_or(field, |(_, specification)| specification),
    };
    let mut numbers = specification.split(|letter: char| !letter.is_ascii_digit());
    let is_too_large = |number: &str| number.parse::<usize>().map_or(!number.is_empty(), |n| n > MAX_WIDTH);
    if numbers.any(is_too_large) {
        let problem = format!("the width and the precision of a formatted value are {MAX_WIDTH} at most");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    Ok(())
}

/// Takes fuel for the items of a list and their texts, or the texts of this attribute of theirs.
fn pay_for_items(state: &State<'_, '_>, list: &Value, attribute: Option<&str>) -> Result<(), Error> {
    for item in list.try_iter()? {
        let text = attribute.map_or_else(|| item.clone(), |path| member_at(item.clone(), path));
        pay(state, ITEM_BYTES + text.as_str().map_or(0, str::len))?;
    }
    Ok(())
}

/// The member at a path of names and places.
fn member_at(value: Value, path: &str) -> Value {
    path.split('.').fold(value, |value, name| {
        let member = name.parse().map_or_else(|_| value.get_attr(name), |at| value.get_item_by_index(at));
        member.unwrap_or_default()
    })
}

/// Takes fuel for this many bytes.
fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes.div_ceil(FUEL_BYTES).try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_field_by_field() {
        let pieces = |style: FormatStyle, mut text: &'static str| {
            let mut pieces = Vec::new();
            while !text.is_empty() {
                let (piece, is_field) = next_piece(style, text);
                pieces.push((piece, is_field));
                text = &text[piece.len()..];
            }
            pieces
        };
        assert_eq!(
            pieces(FormatStyle::StrFormat, "a}}{{{0[x]:>3}{b"),
            [("a}}", false), ("{{", false), ("{0[x]:>3}", true), ("{b", true)]
        );
        assert_eq!(
            pieces(FormatStyle::Printf, "%%%-5.2lf%(a b)s d%"),
            [("%%", false), ("%-5.2lf", true), ("%(a b)s", true), (" d", false), ("%", true)]
        );
    }

    #[test]
    fn the_width_and_the_precision_are_bounded() {
        for (style, field, is_allowed) in [
            (FormatStyle::StrFormat, "{5000:>1024}", true),
            (FormatStyle::StrFormat, "{:>1025}", false),
            (FormatStyle::StrFormat, "{:.1025f}", false),
            (FormatStyle::StrFormat, "{:99999999999999999999999}", false),
            (FormatStyle::Printf, "%(a5000)01024.1024f", true),
            (FormatStyle::Printf, "%1025d", false),
            (FormatStyle::Printf, "%.1025f", false),
        ] {
            assert_eq!(check_width(style, field).is_ok(), is_allowed, "{field}");
        }
    }
}
