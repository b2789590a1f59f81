//! One line of the text, by the Prometheus grammar: names are bare, or in quotes within the braces.

use std::borrow::Cow;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_till, take_till1, take_while1};
use nom::character::complete::{char, space0, space1};
use nom::combinator::{all_consuming, eof, map_opt, opt, peek, recognize, value};
use nom::error::Error;
use nom::multi::fold_many_m_n;
use nom::sequence::{delimited, preceded, terminated};
use nom::{IResult, Parser};

/// The rest of a line after the name of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MetricSample<'a> {
    pub(super) labels: SampleLabels<'a>,
    pub(super) value: f64,
    /// Milliseconds since 1970; 0 when the server gave none.
    pub(super) timestamp: i64,
}

/// The text between the braces, which is well formed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SampleLabels<'a>(&'a [u8]);

/// Name and kind of a `# TYPE` line, `None` for every other comment.
pub(super) fn type_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = alt((quoted, take_till1(is_blank)));
    let name = preceded((char('#'), space0, tag("TYPE"), space1), name);
    let parsed: IResult<_, _> = (name, preceded(space1, take_till1(is_blank))).parse(line);
    parsed.ok().map(|(_, pair)| pair)
}

/// The name of a metric that is written in quotes within the braces, `{"name",label="value"} 1`, and the text
/// after it. The name's escapes are left as written: no metric of a dialect needs one.
pub(super) fn quoted_name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let comma = alt((value((), char(',')), peek(value((), char('}')))));
    let mut name = delimited((char('{'), space0), quoted, (space0, comma));
    let parsed: IResult<_, _> = name.parse(line);
    parsed.ok().map(|(after, name)| (name, after))
}

/// Maximum number of labels of a series.
const MAX_LABELS: usize = 128;

/// Reads labels, value and timestamp. `None`: the line is malformed, or has more than [`MAX_LABELS`].
pub(super) fn sample(after_name: &[u8]) -> Option<MetricSample<'_>> {
    let labels = preceded((space0, char('{')), label_text);
    numbers(opt(labels).map(|labels| labels.unwrap_or(SampleLabels(b""))))
        .parse(after_name)
        .ok()
        .map(|(_, sample)| sample)
}

/// Reads labels, value and timestamp after a [`quoted_name`].
pub(super) fn sample_in_braces(after_name: &[u8]) -> Option<MetricSample<'_>> {
    numbers(label_text).parse(after_name).ok().map(|(_, sample)| sample)
}

/// Value and timestamp after the labels, to the end of the line.
fn numbers<'a>(
    labels: impl Parser<&'a [u8], Output = SampleLabels<'a>, Error = Error<&'a [u8]>>,
) -> impl Parser<&'a [u8], Output = MetricSample<'a>, Error = Error<&'a [u8]>> {
    let number = map_opt(take_till1(is_blank), parse_number::<f64>);
    let time = map_opt(take_till1(is_blank), parse_number::<i64>);
    let line = (labels, preceded(space0, number), opt(preceded(space1, time)));
    all_consuming(terminated(line, end)).map(|(labels, value, timestamp)| MetricSample {
        labels,
        value,
        timestamp: timestamp.unwrap_or(0),
    })
}

impl<'a> SampleLabels<'a> {
    /// Labels whose text was stored.
    pub(super) fn of_text(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The text between the braces.
    pub(super) fn text(self) -> &'a [u8] {
        self.0
    }

    /// The value of a label, with its escapes resolved.
    pub(super) fn get(self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.pairs().find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| unescape(value))
    }

    /// Each label with its value, whose escapes are as written.
    pub(super) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            // The labels are well formed, so the first error is their end.
            let (after, pair) = label(rest).ok()?;
            rest = after;
            Some(pair)
        })
    }
}

/// The labels and the brace after them.
fn label_text(input: &[u8]) -> IResult<&[u8], SampleLabels<'_>> {
    let all = recognize((fold_many_m_n(0, MAX_LABELS, label, || (), |(), _| ()), space0));
    terminated(all.map(SampleLabels), char('}')).parse(input)
}

/// `name="value"`, with the blanks around and the comma after it. The name may be in quotes.
fn label(input: &[u8]) -> IResult<&[u8], (&[u8], &[u8])> {
    let name = alt((take_while1(|c: u8| c.is_ascii_alphanumeric() || c == b'_'), quoted));
    let name = delimited(space0, name, (space0, char('='), space0));
    // `eof`, because [`SampleLabels`] ends before the brace.
    let end = alt((value((), char(',')), peek(value((), char('}'))), value((), eof)));
    (name, terminated(quoted, (space0, end))).parse(input)
}

/// The text between two double quotes, with escapes as written: `\\`, `\"` and `\n` are the only ones.
fn quoted(input: &[u8]) -> IResult<&[u8], &[u8]> {
    let (inside, _) = char('"')(input)?;
    let mut at = 0;
    loop {
        let found = memchr::memchr2(b'"', b'\\', &inside[at..]).map(|offset| at + offset);
        match found.map(|at| (at, inside[at], inside.get(at + 1))) {
            Some((end, b'"', _)) => return Ok((&inside[end + 1..], &inside[..end])),
            Some((escape, _, Some(b'\\' | b'"' | b'n'))) => at = escape + 2,
            _ => return Err(nom::Err::Error(nom::error::make_error(input, nom::error::ErrorKind::Escaped))),
        }
    }
}

fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next().map(|&escaped| if escaped == b'n' { b'\n' } else { escaped })),
            _ => plain.push(byte),
        }
    }
    Cow::Owned(plain)
}

fn end(input: &[u8]) -> IResult<&[u8], &[u8]> {
    take_till(|c| !is_blank(c)).parse(input)
}

fn is_blank(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\r')
}

fn parse_number<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    // Rust parses `NaN`, `+Inf` and `-Inf` in Prometheus' spelling too.
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(f64, i64)> {
        sample(text.as_bytes()).map(|s| (s.value, s.timestamp))
    }

    #[test]
    fn value_and_timestamp_with_and_without_labels() {
        assert_eq!(read(" 4"), Some((4.0, 0)));
        assert_eq!(read("\t4.5e2  17 "), Some((450.0, 17)));
        assert_eq!(read("{} -1"), Some((-1.0, 0)));
        assert_eq!(read("{a=\"b\"}3"), Some((3.0, 0)));
        assert_eq!(read(" { a = \"b\" , c=\"\", } +Inf -5\r"), Some((f64::INFINITY, -5)));
        assert!(read(" NaN").unwrap().0.is_nan());
    }

    #[test]
    fn malformed_lines_are_refused() {
        for text in [
            "",
            " ",
            " x",
            " 1 x",
            " 1 2 3",
            " 1 2.5",
            "{",
            "{a=\"b\" 1",
            "{a=b} 1",
            "{a=\"b\"c=\"d\"} 1",
            "{a=\"\\q\"} 1",
            "{a=\"b} 1",
            "{a=\"\\",
            "{,} 1",
            "{=\"b\"} 1",
            "{a=\"b\"}",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_line_with_too_many_labels_is_refused() {
        let line = |labels: usize| format!("{{{}}} 1", r#"a="b","#.repeat(labels));
        assert_eq!(read(&line(MAX_LABELS)), Some((1.0, 0)));
        assert_eq!(read(&line(MAX_LABELS + 1)), None);
    }

    #[test]
    fn labels_are_found_by_name_with_their_escapes_resolved() {
        let labels = sample(b"{plain=\"a}b,c\",esc=\"q\\\"b\\\\n\\n\",plain=\"later\"} 1").unwrap().labels;
        assert_eq!(labels.get("plain").as_deref(), Some(&b"a}b,c"[..]));
        assert_eq!(labels.get("esc").as_deref(), Some(&b"q\"b\\n\n"[..]));
        assert_eq!(labels.get("esc\""), None);
        assert_eq!(labels.get("pl"), None);
    }

    #[test]
    fn names_may_be_in_quotes() {
        let (name, after) = quoted_name(b"{ \"a:b\" , \"x.y\" = \"1\", z=\"2\"} 7").unwrap();
        assert_eq!(name, b"a:b");
        let sample = sample_in_braces(after).unwrap();
        assert_eq!((sample.value, sample.labels.get("x.y").as_deref()), (7.0, Some(&b"1"[..])));
        assert_eq!(sample.labels.get("z").as_deref(), Some(&b"2"[..]));
        assert_eq!(quoted_name(b"{\"a\"} 1"), Some((&b"a"[..], &b"} 1"[..])));
        assert_eq!(type_line(b"# TYPE \"a b\" gauge"), Some((&b"a b"[..], &b"gauge"[..])));
        for line in [&b"{\"a\"=\"b\"} 1"[..], b"{a} 1", b"{\"a} 1", b"{\"a\" 1", b"a 1", b"{"] {
            assert_eq!(quoted_name(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn only_type_comments_have_a_kind() {
        assert_eq!(type_line(b"# TYPE a:b gauge"), Some((&b"a:b"[..], &b"gauge"[..])));
        assert_eq!(type_line(b"#\tTYPE  a   counter \r"), Some((&b"a"[..], &b"counter"[..])));
        for text in [&b"# HELP a gauge"[..], b"# TYPE a", b"#TYPES a gauge", b"#", b"# TYPE  "] {
            assert_eq!(type_line(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }
}
