//! Tokenizers: the input is a file of each kind.
//!
//! The length of a text is bounded by the number of its tokens, and the text of several tokens is the texts
//! of each, except for spaces that the tokenizer adds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metrics_agent_kv_events::tokenizer::file::FileKind;
use metrics_agent_kv_events::tokenizer::vocabulary::{MAX_TOKEN_BYTES, MAX_TOKENS, Vocabulary};

fuzz_target!(|input: &[u8]| {
    for file in FileKind::ALL.into_iter().filter_map(|kind| kind.read(input).ok()) {
        check(&file.vocabulary);
    }
});

fn check(vocabulary: &Vocabulary) {
    assert!(vocabulary.count() <= MAX_TOKENS);
    for id in (0..512).chain([u32::MAX]) {
        let Some(text) = vocabulary.text(&[id, id], false) else { continue };
        let text = text.behind(false);
        let Some(one) = vocabulary.text(&[id], false) else { panic!("token {id} has no text alone") };
        let again = one.behind(one.adds_space);
        assert!(text.len() <= 2 * MAX_TOKEN_BYTES);
        assert_eq!(text, [one.behind(false), again].concat());
    }
}
