//! How much memory a process takes, and how that changes.

use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Resident memory in bytes of a process, or of the largest that it has started: Envoy may be the child of its launcher.
pub(super) fn resident(process: u32) -> Result<u64> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let status = fs::read_to_string(folder.join("status")).context("resident memory, which needs Linux")?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    let mut most = kilobytes.context("VmRSS")?.trim().parse::<u64>()? * 1024;
    for thread in fs::read_dir(folder.join("task"))? {
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            most = most.max(resident(child.parse().context("a process id")?)?);
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
    fn this_process_takes_some_memory() {
        assert!(resident(std::process::id()).unwrap() > 1 << 20);
    }
}
