//! The parser next to `serde_json`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value};

use super::string::without_lone_surrogates;
use super::{Array, MAX_NESTED, Number, Object, Pass, Reader, Result, Str, element, key, read, value};
use crate::test;

/// Reads a value into a tree.
struct Tree;

impl<'a> Reader<'a> for Tree {
    type Value = Value;

    fn other(self) -> Value {
        unreachable!("each type has a method")
    }

    fn null(self) -> Value {
        Value::Null
    }

    fn boolean(self, value: bool) -> Value {
        value.into()
    }

    fn number(self, value: Number) -> Value {
        match value {
            Number::Unsigned(number) => number.into(),
            Number::Negative(number) => number.into(),
            Number::Decimal(_) | Number::Float(_) => value.as_f64().into(),
        }
    }

    fn string(self, value: Str<'a, '_>) -> Value {
        assert!(value.in_body().is_none_or(|text| text == &*value));
        (*value).to_owned().into()
    }

    fn array(self, mut array: Array<'_, 'a>) -> Result<Value> {
        let mut elements = Vec::new();
        while let Some(element) = element(&mut array, Self)? {
            elements.push(element);
        }
        Ok(elements.into())
    }

    fn object(self, mut object: Object<'_, 'a>) -> Result<Value> {
        let mut members = Map::new();
        while let Some(name) = key(&mut object)? {
            members.insert((*name).to_owned(), value(&mut object, Self)?);
        }
        Ok(members.into())
    }
}

/// Counts a value as long as its bytes, and as 1 any other than a string, an array or an object. Of an
/// array or an object this number of values is read by its parts, and the rest is counted.
#[derive(Clone, Copy)]
struct Counted {
    by_parts: usize,
}

impl<'a> Reader<'a> for Counted {
    type Value = u64;

    fn other(self) -> u64 {
        1
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        value.len() as u64
    }

    fn array(self, mut array: Array<'_, 'a>) -> Result<u64> {
        let mut count = 1;
        for at in 0..self.by_parts {
            let Some(length) = element(&mut array, self)? else { return Ok(count + 1) };
            count += length + u64::from(at > 0);
        }
        Ok(count + array.length(self)?)
    }

    fn object(self, mut object: Object<'_, 'a>) -> Result<u64> {
        let mut count = 1;
        for at in 0..self.by_parts {
            let Some(name) = key(&mut object)? else { return Ok(count + 1) };
            let name = name.len() as u64 + 1 + u64::from(at > 0);
            count += name + value(&mut object, self)?;
        }
        Ok(count + object.length(self)?)
    }
}

/// Compares the parser with `serde_json`, which gets no half of a surrogate pair: value or message. Texts
/// distinguish -0 and 0, and integers and floats.
fn compare(text: &str) {
    let paired = without_lone_surrogates(text);
    let expected = serde_json::from_str::<Value>(paired.as_deref().unwrap_or(text));
    let expected = expected.map(|value| value.to_string()).map_err(|error| error.to_string());
    let found = read(text, Tree).map(|value| value.to_string());
    // What is read past has the same faults, whatever is counted of it.
    let fault = found.as_ref().err();
    assert_eq!(read(text, Pass).as_ref().err(), fault, "{text}");
    let counted = [0, 1, usize::MAX].map(|by_parts| read(text, Counted { by_parts }));
    assert!(counted.iter().all(|counted| counted.as_ref().err() == fault), "{text}: {counted:?}");
    assert!(fault.is_some() || counted.iter().all(|other| *other == counted[0]), "{text}: {counted:?}");
    // `serde_json` may find this within a number already.
    let is_too_great = |read: &core::result::Result<String, String>| {
        read.as_ref().is_err_and(|message| message.starts_with("number out of range"))
    };
    if !is_too_great(&found) || !is_too_great(&expected) {
        assert_eq!(found, expected, "{text}");
    }
}

fn runner(seed: u8, cases: u32) -> TestRunner {
    TestRunner::new_with_rng(Config::with_cases(cases), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

const PARTS: [&str; 63] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    " ",
    "\n",
    "\t",
    "\r",
    "\0",
    "\u{1f}",
    "\u{b}",
    "é",
    "😀",
    "0",
    "1",
    "9",
    "-",
    "+",
    ".",
    "e",
    "E",
    "u",
    "n",
    "true",
    "false",
    "null",
    "nul",
    "tru",
    "x",
    "\"a\":",
    "\"é\":",
    "\"\\n\":",
    "\"a\"",
    "\"\"",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\n\"",
    "\"\\ud83d\\ud83d\\ude00\"",
    "\"\\u00g9\"",
    "\"\\u00\"",
    "\\u0",
    "\\ud800",
    "\"\\x\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "[1,",
    "1]",
    "{\"a\":1",
    "\"b\":2}",
    "1.5",
    "-0",
    "-0.0",
    "1e5",
    "1E-5",
    "0.1",
    "1e400",
    "18446744073709551616",
    "[]",
];

#[test]
fn any_text_has_the_value_or_the_message_of_serde_json() {
    let run = runner(0x15, 6_000).run(&vec(select(PARTS.to_vec()), 0..12), |parts| {
        compare(&parts.concat());
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// JSON with all its parts.
const WHOLE: &str = r#" { "model" : "é😀 and a long text that is read in blocks, an \u00e9scape, \ud83d\ude00",
    "n" : [ 0, -1, 1.5, -2.5e-3, 1E+10, 18446744073709551615, -9223372036854775808, true, false, null ],
    "o" : { "" : { } , "\n" : [ ] ,
    "long name of a member that is read in blocks" : [ [ { "a" : "\"\\" } ] ] } } "#;

#[test]
fn a_text_that_is_cut_or_changed_anywhere_has_the_value_or_the_message_of_serde_json() {
    for end in (0..=WHOLE.len()).filter(|&end| WHOLE.is_char_boundary(end)) {
        compare(&WHOLE[..end]);
    }
    let inputs = (any::<Index>(), 0..3_usize, select(PARTS.to_vec()));
    let run = runner(0x16, 3_000).run(&inputs, |(at, removed, part)| {
        let letters: Vec<char> = WHOLE.chars().collect();
        let at = at.index(letters.len());
        let rest = letters.get(at + removed..).unwrap_or_default();
        compare(
            &letters[..at]
                .iter()
                .copied()
                .chain(part.chars())
                .chain(rest.iter().copied())
                .collect::<String>(),
        );
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn any_number_has_the_value_of_serde_json() {
    let whole = (select(vec!["", "-"]), any::<u64>(), any::<u64>(), 0..24_usize);
    let fraction = (any::<u64>(), 0..24_usize);
    let exponent =
        (select(vec!["", "e", "E+", "e-"]), select(vec![2, 23, 400, 99_999, u64::MAX]), any::<u64>());
    let run = runner(0x17, 6_000).run(&(whole, fraction, exponent), |(whole, fraction, exponent)| {
        let (sign, number, more, length) = whole;
        let (digits, places) = fraction;
        let mut text = format!("{sign}{number}{more}");
        text.truncate(sign.len() + length.max(1));
        if places > 0 {
            text += ".";
            text += &format!("{digits:024}")[24 - places..];
        }
        let (mark, limit, number) = exponent;
        if !mark.is_empty() {
            text += mark;
            text += &(number % limit).to_string();
        }
        compare(&text);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    for text in
        ["9007199254740993", "9007199254740993.0", "1e22", "1e23", "123456789012345e22", "0e400", "-0e-1"]
    {
        compare(text);
    }
}

#[test]
fn levels_are_read_up_to_the_limit_of_serde_json() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), ("[[],", "]")] {
        for levels in [MAX_NESTED - 1, MAX_NESTED, MAX_NESTED + 1, 200] {
            compare(&(open.repeat(levels) + "1" + &close.repeat(levels)));
        }
    }
}
