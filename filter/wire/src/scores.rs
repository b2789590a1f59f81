//! Scores of endpoints in the format of Envoy's metadata.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

/// A `google.protobuf.Value`: a structure with the scores of the best endpoints, by their addresses, up to
/// `max_bytes`.
pub fn endpoint_scores(scores: Vec<(&str, f64)>, max_bytes: usize) -> Vec<u8> {
    structure(scores, max_bytes).encode_to_vec()
}

/// A `google.protobuf.Struct` with that structure under one key.
pub fn endpoint_scores_field(key: &str, scores: Vec<(&str, f64)>, max_bytes: usize) -> Vec<u8> {
    let fields = BTreeMap::from([(key.to_owned(), structure(scores, max_bytes))]);
    Struct { fields }.encode_to_vec()
}

fn structure(mut scores: Vec<(&str, f64)>, max_bytes: usize) -> Value {
    scores.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut size = STRUCT_BYTES;
    let fits = |(address, _): &(&str, f64)| {
        size += FIELD_BYTES + address.len();
        size <= max_bytes
    };
    let fields: BTreeMap<_, _> = scores.into_iter().take_while(fits).map(field).collect();
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}

fn field((address, score): (&str, f64)) -> (String, Value) {
    (address.to_owned(), Value { kind: Some(Kind::NumberValue(score)) })
}

/// Maximum number of bytes around the fields: a tag and a length.
const STRUCT_BYTES: usize = 1 + 5;

/// Bytes of a field without its key: four tags, three lengths below 128, and the number.
const FIELD_BYTES: usize = 4 + 3 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(String, f64)> {
        let Some(Kind::StructValue(scores)) = Value::decode(bytes).unwrap().kind else {
            panic!("no structure");
        };
        let number = |value: Value| match value.kind {
            Some(Kind::NumberValue(number)) => number,
            other => panic!("no number: {other:?}"),
        };
        scores.fields.into_iter().map(|(address, value)| (address, number(value))).collect()
    }

    #[test]
    fn every_endpoint_has_its_score() {
        let scores = vec![("10.0.0.1:8000", 0.25), ("[2001:db8::1]:8000", -1.5)];
        let expected: Vec<_> = scores.iter().map(|&(address, score)| (address.to_owned(), score)).collect();
        assert_eq!(read(&endpoint_scores(scores, 6141)), expected);
        assert_eq!(read(&endpoint_scores(vec![], 6141)), []);
    }

    #[test]
    fn what_does_not_fit_are_the_worst() {
        let addresses: Vec<String> =
            (0..1000).map(|index| format!("10.0.{}.{}:8000", index / 250, index % 250)).collect();
        let scores: Vec<_> = addresses
            .iter()
            .zip(0u32..)
            .map(|(address, score)| (address.as_str(), f64::from(score)))
            .collect();
        let bytes = endpoint_scores(scores.clone(), 6141);
        assert!((6141 - 40..=6141).contains(&bytes.len()), "{}", bytes.len());
        let mut kept: Vec<_> = read(&bytes).into_iter().map(|(_, score)| score).collect();
        kept.sort_by(f64::total_cmp);
        let best: Vec<_> = scores[scores.len() - kept.len()..].iter().map(|&(_, score)| score).collect();
        assert_eq!(kept, best);
        assert_eq!(endpoint_scores(scores, 0), endpoint_scores(vec![], 0));
    }
}
