//! Azure's traces of 2023: times and lengths. Prompts share nothing.

use super::time::seconds;
use super::{Line, tokens};

/// The first line.
pub(super) const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads a request.
pub(super) fn read(text: &str) -> Result<Line<'_>, String> {
    let fields: Vec<&str> = text.splitn(5, ',').collect();
    let [time, input, output] = fields[..] else {
        return Err(format!("{} fields; must be 3", fields.len()));
    };
    let number =
        |name: &str, text: &str| text.parse().map_err(|_| format!("{name} is {text:?}; must be a number"));
    let at =
        seconds(time).ok_or_else(|| format!("TIMESTAMP is {time:?}; must be like 2023-11-16 18:15:46.68"))?;
    Ok(Line {
        at,
        input: tokens("ContextTokens", number("ContextTokens", input)?)?,
        output: tokens("GeneratedTokens", number("GeneratedTokens", output)?)?,
        ..Line::default()
    })
}
