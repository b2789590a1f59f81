//! How much memory a process takes, and how that changes.

use crate::bench::median;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Bytes that a process, or the largest that it has started, has for itself, in memory or swapped out: Envoy may be the child
/// of its launcher. Pages of files, the program's own among them, come and go with the kernel's needs and are left out.
pub(crate) fn taken(process: u32) -> Result<u64> {
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

/// How much `y` usually grows for each unit of `x`: the median between points that lie `apart`; 0 if none do.
///
/// Memory that was never needed at once before comes in steps and stays; a leak is there between any two looks.
pub(super) fn usual_growth(points: &[(f64, f64)], apart: usize) -> f64 {
    let later = points.iter().skip(apart);
    median(points.iter().zip(later).map(|(from, to)| (to.1 - from.1) / (to.0 - from.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_seen_and_a_step_is_not() {
        let points = |y: fn(f64) -> f64| (0..100).map(f64::from).map(|x| (x, y(x))).collect::<Vec<_>>();
        assert!((usual_growth(&points(|x| 3.0 + 2.0 * x), 20) - 2.0).abs() < 1e-9);
        assert!(usual_growth(&points(|x| if x < 50.0 { 3.0 } else { 15.0 }), 20).abs() < 1e-9);
        assert!(usual_growth(&[(0.0, 1.0)], 20).abs() < 1e-9);
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
