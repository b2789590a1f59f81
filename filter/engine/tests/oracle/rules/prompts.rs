//! Prompts as tokens, and as blocks.

use xxhash_rust::xxh64::xxh64;

use crate::world::{Prompt, RequestSpec};

/// The tokens of each list of a prompt, as bytes.
pub(super) fn lists(prompt: &Prompt) -> Vec<Vec<u8>> {
    match prompt {
        Prompt::Nothing => vec![],
        Prompt::Texts(texts) => texts.iter().map(|text| padded(text.as_bytes())).collect(),
        Prompt::Ids(ids) => vec![ids.iter().flat_map(|id| id.to_le_bytes()).collect()],
        Prompt::Image { text, url } => {
            // A image of unknown size counts as 640x360.
            let token = &xxh64(url.as_bytes(), 0).to_le_bytes()[..4];
            let message = padded(format!("user{text}").as_bytes());
            vec![[message, token.repeat(640 * 360 / 1024)].concat()]
        }
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while !bytes.len().is_multiple_of(4) {
        bytes.push(0);
    }
    bytes
}

pub(super) fn token_count(prompt: &Prompt) -> u64 {
    lists(prompt).iter().map(|list| list.len() as u64 / 4).sum()
}

/// The number of each list's blocks of `size` tokens that are full.
pub(super) fn full_blocks(prompt: &Prompt, size: usize) -> Vec<usize> {
    lists(prompt).iter().map(|list| list.len() / (4 * size)).collect()
}

/// The chain of hashes of each list: the first `most` blocks of `size` tokens.
pub(super) fn chains(spec: &RequestSpec, size: usize, most: usize) -> Vec<Vec<u64>> {
    let chain = |list: Vec<u8>| {
        let mut previous = xxh64(format!("{}{}", spec.model, spec.salt.unwrap_or_default()).as_bytes(), 0);
        let link = |block: &[u8]| {
            previous = xxh64(&[xxh64(block, 0).to_le_bytes(), previous.to_le_bytes()].concat(), 0);
            previous
        };
        list.chunks(4 * size).take(most).map(link).collect()
    };
    lists(&spec.prompt).into_iter().map(chain).collect()
}
