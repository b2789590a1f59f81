//! The EPP's notation for a series: `name{label=value,…}`.

use core::fmt;

use nom::branch::alt;
use nom::bytes::complete::{take_till1, take_while, take_while1};
use nom::character::complete::{char, multispace0};
use nom::combinator::{all_consuming, opt, recognize, verify};
use nom::multi::separated_list0;
use nom::sequence::{delimited, separated_pair};
use nom::{IResult, Parser};

/// A metric, and the labels with values that its series must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetricSpec {
    name: String,
    labels: Vec<(String, String)>,
}

impl MetricSpec {
    /// Parses the notation. Values may be bare or in double quotes, blanks may surround every token, and
    /// metric and label names follow Prometheus' legacy rules. `None`: the text is blank.
    pub fn parse(text: &str) -> Result<Option<Self>, SpecError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        match all_consuming(spec).parse(text) {
            Ok((_, spec)) => Ok(Some(spec)),
            Err(_) => Err(SpecError(text.to_owned())),
        }
    }

    /// The name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The required labels with their values.
    pub fn labels(&self) -> &[(String, String)] {
        &self.labels
    }
}

fn spec(input: &str) -> IResult<&str, MetricSpec> {
    let name = delimited(multispace0, metric_name, multispace0);
    let pair = separated_pair(blanks(label_name), char('='), blanks(alt((quoted, bare))));
    let labels = delimited(
        char('{'),
        delimited(multispace0, separated_list0(char(','), pair), multispace0),
        (char('}'), multispace0),
    );
    (name, opt(labels))
        .map(|(name, labels)| MetricSpec {
            name: name.to_owned(),
            labels: labels
                .unwrap_or_default()
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        })
        .parse(input)
}

fn blanks<'a, P>(token: P) -> impl Parser<&'a str, Output = &'a str, Error = nom::error::Error<&'a str>>
where
    P: Parser<&'a str, Output = &'a str, Error = nom::error::Error<&'a str>>,
{
    delimited(multispace0, token, multispace0)
}

fn metric_name(input: &str) -> IResult<&str, &str> {
    let legal = take_while1(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    verify(legal, |name: &str| !name.starts_with(|c: char| c.is_ascii_digit())).parse(input)
}

fn label_name(input: &str) -> IResult<&str, &str> {
    let legal = take_while1(|c: char| c.is_ascii_alphanumeric() || c == '_');
    verify(recognize(legal), |name: &str| !name.starts_with(|c: char| c.is_ascii_digit())).parse(input)
}

fn quoted(input: &str) -> IResult<&str, &str> {
    delimited(char('"'), take_while(|c| c != '"'), char('"')).parse(input)
}

fn bare(input: &str) -> IResult<&str, &str> {
    take_till1(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | '{' | '"' | '=')).parse(input)
}

/// The text is not a metric spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a metric spec; allowed is name or name{{label=value,…}}", self.0)
    }
}

impl core::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Vec<(String, String)>) {
        let spec = MetricSpec::parse(text).unwrap().unwrap();
        (spec.name, spec.labels)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_blank_text_has_no_metric() {
        assert_eq!(MetricSpec::parse(""), Ok(None));
        assert_eq!(MetricSpec::parse("  "), Ok(None));
    }

    #[test]
    fn a_name_alone_requires_no_labels() {
        assert_eq!(parsed("vllm:num_requests_waiting"), ("vllm:num_requests_waiting".to_owned(), vec![]));
        assert_eq!(parsed(" a{ } "), ("a".to_owned(), vec![]));
    }

    #[test]
    fn values_are_bare_or_quoted_and_blanks_are_free() {
        let want = pairs(&[("request_type", "waiting"), ("x", "a b,c")]);
        assert_eq!(parsed("m{request_type=waiting,x=\"a b,c\"}").1, want);
        assert_eq!(parsed(" m { request_type = waiting , x = \"a b,c\" } ").1, want);
    }

    #[test]
    fn illegal_names_and_broken_braces_are_refused_with_the_text() {
        for text in ["1a", "a-b", "a{b}", "a{b=}", "a{1b=c}", "a{b=c", "a{b=c,}", "a b", "{a=b}", "a{b:c=d}"]
        {
            let error = MetricSpec::parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
