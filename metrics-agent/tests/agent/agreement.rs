//! The fast reader agrees with a slow, simple one on random texts in random chunks.

use std::collections::BTreeMap;

use metrics_agent_catalogue::dialect::{Dialects, TextRules};
use metrics_agent_scrape::exposition::Reader;
use proptest::prelude::*;

/// One series in the slow reader.
struct Series {
    labels: Vec<(String, String)>,
    value: f64,
    timestamp: i64,
}

impl Series {
    /// The first value of the label `engine`, which is not empty.
    fn engine(&self) -> Option<&str> {
        let engines = self.labels.iter().filter(|(name, value)| name == "engine" && !value.is_empty());
        engines.map(|(_, value)| value.as_str()).next()
    }

    /// The labels that distinguish series of one engine.
    fn others(&self) -> Vec<&(String, String)> {
        let others = self.labels.iter().filter(|(name, value)| name != "engine" && !value.is_empty());
        let mut others: Vec<_> = others.collect();
        others.sort();
        others
    }
}

/// All series of a metric, read one character at a time. `None`: a line is malformed.
fn series(text: &str, metric: &str, as_epp: bool) -> Option<(Vec<Series>, bool)> {
    let mut all = Vec::new();
    let (mut has_values, mut is_counter) = (!as_epp, false);
    for line in text.split('\n') {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["#", "TYPE", name, kind, ..] = words[..]
            && name == metric
        {
            has_values = !as_epp || kind == "gauge" || kind == "counter";
            is_counter = kind == "counter";
        }
        let name_ends = line.find(['{', ' ']).unwrap_or(line.len());
        if line.starts_with('#') || line[..name_ends] != *metric || name_ends == line.len() {
            continue;
        }
        let mut rest = line[name_ends..].chars().peekable();
        let mut labels = Vec::new();
        if rest.peek() == Some(&'{') {
            rest.next();
            while rest.peek() != Some(&'}') {
                let key: String =
                    std::iter::from_fn(|| rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_')).collect();
                if key.is_empty() || rest.next() != Some('=') || rest.next() != Some('"') {
                    return None;
                }
                let mut value = String::new();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => value.push(match rest.next()? {
                            'n' => '\n',
                            escaped @ ('\\' | '"') => escaped,
                            _ => return None,
                        }),
                        plain => value.push(plain),
                    }
                }
                labels.push((key, value));
                if rest.next_if_eq(&',').is_none() && rest.peek() != Some(&'}') {
                    return None;
                }
            }
            rest.next();
        }
        let numbers: String = rest.collect();
        let numbers: Vec<_> = numbers.split_whitespace().collect();
        let (value, timestamp) = match numbers[..] {
            [value] => (value.parse().ok()?, 0),
            [value, timestamp] => (value.parse().ok()?, timestamp.parse().ok()?),
            _ => return None,
        };
        all.push(Series { labels, value: if has_values { value } else { 0.0 }, timestamp });
    }
    Some((all, is_counter))
}

/// The slow reader's count of waiting requests.
fn slow_waiting(text: &str, rules: TextRules) -> Option<u64> {
    let (all, is_counter) = series(text, "vllm:num_requests_waiting", rules.as_epp)?;
    if is_counter && !rules.as_epp {
        return None;
    }
    let mut by_engine: BTreeMap<Option<&str>, Vec<&Series>> = BTreeMap::new();
    for series in &all {
        let engine = if rules.as_epp { None } else { series.engine() };
        by_engine.entry(engine).or_default().push(series);
    }
    let mut sum = None;
    for series in by_engine.values() {
        if !rules.as_epp && series.iter().any(|other| other.others() != series[0].others()) {
            return None;
        }
        let newest = series.iter().map(|series| series.timestamp).max()?;
        let value = series.iter().find(|series| series.timestamp == newest)?.value;
        if !value.is_finite() || !(0.0..=9_007_199_254_740_992.0).contains(&value) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        let count = value.trunc() as u64;
        sum = Some(sum.unwrap_or(0) + count);
    }
    sum
}

fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => Just("vllm:num_requests_waiting"),
        1 => Just("vllm:num_requests_waiting_by_reason"),
        1 => Just("vllm:num_requests_running"),
    ];
    let key = prop_oneof![Just("engine"), Just("m")];
    let text = prop_oneof![3 => "[0-3]", 1 => "[ab,}={ ]{0,4}", 1 => Just("\\\"\\\\\\n".to_owned()), 1 => "\\\\?[nx\"]?"];
    let label = (key, text).prop_map(|(key, value)| format!("{key}=\"{value}\""));
    let labels = prop_oneof![
        1 => Just(String::new()),
        4 => proptest::collection::vec(label, 0..3).prop_map(|labels| format!("{{{}}}", labels.join(","))),
    ];
    let value = prop_oneof![8 => "[0-9]{1,2}(\\.[0-9])?", 1 => Just("-1".to_owned()), 1 => Just("NaN".to_owned()), 1 => "[x]?"];
    let time = prop_oneof![3 => Just(String::new()), 1 => " -?[0-9]"];
    let sample = (name, labels, value, time).prop_map(|(n, l, v, t)| format!("{n}{l} {v}{t}"));
    let kind = prop_oneof![3 => Just("gauge"), 1 => Just("untyped"), 1 => Just("counter")];
    prop_oneof![
        5 => sample,
        1 => kind.prop_map(|kind| format!("# TYPE vllm:num_requests_waiting {kind}")),
        1 => Just("# HELP vllm:num_requests_waiting 3".to_owned()),
        1 => "[ -~]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn fast_and_slow_agree(
        lines in proptest::collection::vec(line(), 0..8),
        typed in any::<bool>(),
        as_epp in any::<bool>(),
        chunk in 1_usize..40,
    ) {
        let mut text = if typed { "# TYPE vllm:num_requests_waiting gauge\n".to_owned() } else { String::new() };
        text += &lines.join("\n");
        let rules = if as_epp { TextRules::EPP } else { TextRules::default() };
        let mut reader = Reader::new(Dialects::built_in().of_engine("vllm"), rules);
        reader.start();
        for chunk in text.as_bytes().chunks(chunk) {
            reader.feed(chunk);
        }
        prop_assert_eq!(reader.finish().reading.waiting, slow_waiting(&text, rules), "{}", text);
    }
}

#[test]
fn the_slow_reader_reads_the_captures() {
    let text = include_str!("../captures/vllm-0.32.0-dp2-lora-busy.prom");
    assert_eq!(slow_waiting(text, TextRules::default()), Some(8));
    assert_eq!(slow_waiting(text, TextRules::EPP), Some(2));
}
