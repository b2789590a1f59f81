//! The GPU utilization of pods, from the text of a DCGM exporter.

use std::sync::Arc;

use super::sample::{quoted_name, sample, sample_in_braces, type_line};
use super::{LineReader, TextReader};

/// The exporter's gauge of the time in which a GPU computes, in percent.
const METRIC: &[u8] = b"DCGM_FI_DEV_GPU_UTIL";

/// The label with the pod that uses a GPU. A GPU without it counts for every pod.
const POD: &str = "pod";

/// Reads the texts of one exporter, one after the other, for the pods of some endpoints.
///
/// The rule is the EPP's: an endpoint has the greatest value of the series without a label `pod`, or with an
/// empty one, and of those that name its pod, divided by 100, and never less than 0. A metric that is not a
/// gauge gives no value; a malformed line is skipped.
pub type GpuReader = TextReader<GpuGauge>;

/// The gauge's greatest values so far, in percent.
#[derive(Debug)]
pub struct GpuGauge {
    /// Whether the metric is a gauge.
    is_gauge: bool,
    /// The greatest value of the series without a pod.
    of_all: Option<f64>,
    /// Each pod with the greatest value of its series.
    of_pods: Vec<(Arc<str>, Option<f64>)>,
}

impl GpuReader {
    /// A reader for endpoints of these pods.
    pub fn new(pods: impl IntoIterator<Item = Arc<str>>) -> Self {
        let of_pods = pods.into_iter().map(|pod| (pod, None)).collect();
        let gauge = GpuGauge { is_gauge: false, of_all: None, of_pods };
        Self::of(gauge)
    }

    /// Ends the text, and returns the utilization of each pod in their order; `None`: the text has none.
    pub fn finish(&mut self) -> Vec<Option<f64>> {
        let GpuGauge { of_all, of_pods, .. } = self.end();
        let values = of_pods.iter().map(|&(_, own)| greater(own, *of_all));
        values.map(|percent| percent.map(|percent| (percent / 100.0).max(0.0))).collect()
    }
}

impl LineReader for GpuGauge {
    fn clear(&mut self) {
        self.is_gauge = false;
        self.of_all = None;
        self.of_pods.iter_mut().for_each(|(_, value)| *value = None);
    }

    fn read_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii_start();
        if line.first() == Some(&b'#') {
            if let Some((METRIC, kind)) = type_line(line) {
                self.is_gauge = kind.eq_ignore_ascii_case(b"gauge");
            }
            return;
        }
        let sample = match quoted_name(line) {
            Some((METRIC, labels)) => sample_in_braces(labels),
            Some(_) => None,
            None => line.strip_prefix(METRIC).and_then(sample),
        };
        let Some(sample) = sample.filter(|sample| self.is_gauge && sample.value.is_finite()) else { return };
        let value = Some(sample.value);
        match sample.labels.get(POD).filter(|pod| !pod.is_empty()) {
            None => self.of_all = greater(self.of_all, value),
            Some(pod) => {
                for (_, own) in self.of_pods.iter_mut().filter(|(name, _)| *name.as_bytes() == *pod) {
                    *own = greater(*own, value);
                }
            }
        }
    }
}

fn greater(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pods: &[&str]) -> GpuReader {
        GpuReader::new(pods.iter().map(|&pod| pod.into()))
    }

    fn read(pods: &[&str], text: &str) -> Vec<Option<f64>> {
        let mut reader = reader(pods);
        reader.start();
        reader.feed(text.as_bytes());
        reader.finish()
    }

    const TEXT: &str = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",Hostname="n1",pod="llama-0",namespace="a"} 35
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",device="nvidia1",Hostname="n1",pod="llama-0",namespace="a"} 80
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-3",device="nvidia2",Hostname="n1",pod="llama-1",namespace="a"} 7
# TYPE DCGM_FI_DEV_MEM_COPY_UTIL gauge
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",pod="llama-1"} 99
DCGM_FI_DEV_GPU_UTIL_X{gpu="0",pod="llama-1"} 99
"#;

    /// Example of `dcgm-extractor`.
    #[test]
    fn a_pod_is_as_busy_as_its_busiest_gpu() {
        assert_eq!(
            read(&["llama-0", "llama-1", "llama-0", "other"], TEXT),
            [Some(0.8), Some(0.07), Some(0.8), None]
        );
    }

    #[test]
    fn a_gpu_without_a_pod_counts_for_every_pod() {
        let text = format!("{TEXT}DCGM_FI_DEV_GPU_UTIL{{gpu=\"3\"}} 50\n");
        assert_eq!(read(&["llama-0", "llama-1", "other"], &text), [Some(0.8), Some(0.5), Some(0.5)]);
    }

    #[test]
    fn values_that_are_not_of_a_gauge_or_not_finite_are_not_read() {
        let of = |kind: &str, value: &str| {
            let text = format!("# TYPE DCGM_FI_DEV_GPU_UTIL {kind}\nDCGM_FI_DEV_GPU_UTIL {value}\n");
            read(&["a"], &text)[0]
        };
        assert_eq!(of("gauge", "40"), Some(0.4));
        assert_eq!(of("gauge", "-3"), Some(0.0));
        assert_eq!(
            [of("counter", "40"), of("gauge", "NaN"), of("gauge", "+Inf"), of("gauge", "x")],
            [None; 4]
        );
        assert_eq!(read(&["a"], "DCGM_FI_DEV_GPU_UTIL 40\n"), [None], "its kind is not known");
    }

    #[test]
    fn the_values_do_not_depend_on_where_chunks_end_and_are_forgotten_with_the_text() {
        let mut reader = reader(&["llama-0", "llama-1"]);
        for bytes in [1, 7, 4096] {
            reader.start();
            TEXT.as_bytes().chunks(bytes).for_each(|chunk| reader.feed(chunk));
            assert_eq!(reader.finish(), [Some(0.8), Some(0.07)], "{bytes}");
            assert_eq!(reader.series(), 5);
        }
        reader.start();
        assert_eq!(reader.finish(), [None, None]);
    }

    #[test]
    fn a_series_with_too_many_labels_is_skipped() {
        let labels = "l=\"\",".repeat(200);
        let text = format!(
            "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} 99\nDCGM_FI_DEV_GPU_UTIL 1\n"
        );
        assert_eq!(read(&["a"], &text), [Some(0.01)]);
    }
}
