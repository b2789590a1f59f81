//! How much memory a process takes, and how that changes.

use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Bytes that a process, or the largest that it has started, has for itself, in memory or swapped out: Envoy may be the child
/// of its launcher. Pages of files, the program's own among them, come and go with the kernel's needs and are left out.
pub(super) fn taken(process: u32) -> Result<u64> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let status =
        fs::read_to_string(folder.join("status")).context("memory of a process, which needs Linux")?;
    let kilobytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
        value.with_context(|| name.to_owned())?.trim().parse::<u64>().context("a number of kB")
    };
    let mut most = (kilobytes("RssAnon:")? + kilobytes("VmSwap:")?) * 1024;
    for thread in fs::read_dir(folder.join("task"))? {
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            most = most.max(taken(child.parse().context("a process id")?)?);
        }
    }
    Ok(most)
}

/// How much `y` grows for each unit of `x`, by least squares; 0 for fewer than two points.
pub(super) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    if points.len() < 2 || spread == 0.0 {
        return 0.0;
    }
    points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum::<f64>() / spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_has_its_slope_and_noise_around_a_level_has_none() {
        let line: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        assert!((slope(&line) - 2.0).abs() < 1e-9);
        assert!(slope(&[(0.0, 5.0), (1.0, 6.0), (2.0, 6.0), (3.0, 5.0)]).abs() < 1e-9);
        assert_eq!(slope(&[(1.0, 1.0)]).to_string(), "0");
    }

    #[test]
    fn what_a_process_fills_it_has() {
        let before = taken(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![1u8; 16 << 20]);
        let with_block = taken(std::process::id()).unwrap();
        assert!(
            with_block >= before + (8 << 20),
            "{before} bytes, then {with_block} with {} more",
            block.len()
        );
    }
}
