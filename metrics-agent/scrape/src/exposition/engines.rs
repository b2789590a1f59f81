//! The engine of a text, by the names of its metrics.

use std::sync::Arc;

use metrics_agent_catalogue::dialect::{Engine, TextRules};

use super::extractor::MetricExtractor;
use super::{Extraction, LineReader};

/// Reads texts of one of several engines. While the engine is not known, texts are read in the dialect of
/// each.
#[derive(Debug)]
pub struct EngineReader {
    engines: Vec<(Arc<str>, MetricExtractor)>,
    /// The place of the engine of the last text.
    known: Option<usize>,
}

impl EngineReader {
    pub(super) fn new(engines: &[Engine], rules: TextRules) -> Self {
        let each = engines.iter();
        let engines: Vec<_> =
            each.map(|it| (Arc::clone(&it.name), MetricExtractor::new(&it.dialect, rules))).collect();
        let known = (engines.len() == 1).then_some(0);
        Self { engines, known }
    }

    /// The engines of which the text may be.
    fn possible(&mut self) -> &mut [(Arc<str>, MetricExtractor)] {
        match self.known {
            Some(at) => &mut self.engines[at..=at],
            None => &mut self.engines,
        }
    }

    /// The values of the text so far, of the first engine of which it has any.
    pub(super) fn extract(&mut self) -> Extraction {
        let first = self.known.unwrap_or(0);
        let mut found = Extraction::default();
        for (at, (name, extractor)) in self.possible().iter().enumerate() {
            found = extractor.extract();
            if !found.is_empty() {
                found.engine = Some(Arc::clone(name));
                self.known = Some(first + at);
                return found;
            }
        }
        if self.engines.len() > 1 {
            // The server may have become one of another engine, so the next text is read in the dialect of
            // each.
            self.known = None;
        }
        found
    }
}

impl LineReader for EngineReader {
    fn clear(&mut self) {
        for (_, extractor) in &mut self.engines {
            extractor.clear();
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        for (_, extractor) in self.possible() {
            extractor.read_line(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_agent_catalogue::dialect::Dialects;

    use super::super::Reader;
    use super::*;

    const VLLM: &str = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 3\n";
    const SGLANG: &str = "# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs 7\n";
    const TRITON: &str =
        "# TYPE nv_inference_pending_request_count gauge\nnv_inference_pending_request_count 2\n";
    const TRITON_LLM: &str =
        "# TYPE nv_trt_llm_request_metrics gauge\nnv_trt_llm_request_metrics{request_type=\"waiting\"} 5\n";

    fn reader(dialects: &Dialects) -> Reader {
        Reader::of_engines(dialects.unnamed(), TextRules::default())
    }

    #[test]
    fn an_engine_is_recognised_by_its_metrics_and_kept_until_a_text_has_none_of_them() {
        let mut reader = reader(&Dialects::built_in());
        let mut read = |text: &str| {
            let extraction = reader.read(text.as_bytes());
            (extraction.engine.map(|name| name.to_string()), extraction.reading.waiting)
        };
        let of = |engine: &str, waiting| (Some(engine.to_owned()), Some(waiting));
        assert_eq!(read("up 1\n"), (None, None));
        assert_eq!(read(SGLANG), of("sglang", 7));
        assert_eq!(read(&(VLLM.to_owned() + SGLANG)), of("sglang", 7), "the engine is kept");
        assert_eq!(read(VLLM), (None, None), "and forgotten when its metrics are gone");
        assert_eq!(read(VLLM), of("vllm", 3));
        assert_eq!(read(""), (None, None));
        assert_eq!(read(&(TRITON.to_owned() + TRITON_LLM)), of("triton-tensorrt-llm", 5));
        assert_eq!(read(TRITON), (None, None));
        assert_eq!(read(TRITON), of("triton", 2));
    }

    #[test]
    fn a_named_engine_is_the_only_one() {
        let mut reader = reader(&Dialects::with_engines("", "vllm", []).unwrap());
        for _ in 0..2 {
            assert_eq!(reader.read(SGLANG.as_bytes()).reading.waiting, None);
        }
        assert_eq!(reader.read(VLLM.as_bytes()).reading.waiting, Some(3));
    }
}
