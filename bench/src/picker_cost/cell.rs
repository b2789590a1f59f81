//! The conditions under which costs are measured.

use crate::load::wrk::WrkLoad;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::str::FromStr;

/// Requests per second of [`Traffic::Steady`].
const STEADY_RATE: u32 = 300;

/// The requests that are sent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// The same prompts again and again, at the maximum rate.
    Saturating,
    /// A new prompt with each request, at the maximum rate.
    NewPrompts,
    /// The same prompts again and again, 300 requests a second.
    Steady,
    /// Requests for streamed responses of 1 000 chunks, at the maximum rate.
    Streamed,
    /// Requests for streamed responses of 100 chunks, one every 2 ms, on all connections at once.
    Paced,
}

/// The conditions of a measurement; on the command line `TRAFFIC/BYTES/ENDPOINTS/WORKERS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) traffic: Traffic,
    /// Length of a request body, about.
    pub(crate) bytes: usize,
    pub(crate) endpoints: u16,
    /// Envoy's.
    pub(crate) workers: u32,
}

/// All that the documents have, as the command line has them.
pub(crate) const DEFAULT_CELLS: &str = "saturating/1024/10/1,saturating/1024/10/4,saturating/2048/10/1,saturating/2048/10/4,steady/2048/10/1,\
streamed/2048/10/1,saturating/1024/100/1,saturating/1024/100/4,saturating/2048/100/1,saturating/2048/100/4,saturating/2048/100/8,\
steady/2048/100/1";

impl Traffic {
    const NAMES: [(&str, Self); 5] = [
        ("saturating", Self::Saturating),
        ("new-prompts", Self::NewPrompts),
        ("steady", Self::Steady),
        ("streamed", Self::Streamed),
        ("paced", Self::Paced),
    ];

    fn named(name: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        let names = || Self::NAMES.map(|(known, _)| known).join(", ");
        found
            .map(|(_, traffic)| *traffic)
            .with_context(|| format!("unknown traffic {name:?}; must be one of {}", names()))
    }
}

impl Cell {
    /// How wrk sends the requests.
    pub(crate) fn load(self) -> WrkLoad {
        match self.traffic {
            Traffic::Steady => WrkLoad::Steady { per_second: STEADY_RATE },
            // Envoy distributes connections over its workers by chance: with few, a worker may have none.
            Traffic::Saturating | Traffic::NewPrompts | Traffic::Streamed | Traffic::Paced => {
                WrkLoad::Saturating { connections: if self.workers == 1 { 32 } else { 64 } }
            }
        }
    }

    /// Whether both send the same requests to the same pool, so that their turns alternate.
    pub(crate) fn differs_only_in_workers(self, other: Self) -> bool {
        Self { workers: other.workers, ..self } == other
    }
}

impl FromStr for Cell {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let [traffic, bytes, endpoints, workers] = text.split('/').collect::<Vec<_>>()[..] else {
            bail!("{text:?} is not TRAFFIC/BYTES/ENDPOINTS/WORKERS");
        };
        let traffic = Traffic::named(traffic)?;
        let cell = Self {
            traffic,
            bytes: bytes.parse().with_context(|| format!("bytes {bytes:?}"))?,
            endpoints: endpoints.parse().with_context(|| format!("endpoints {endpoints:?}"))?,
            workers: workers.parse().with_context(|| format!("workers {workers:?}"))?,
        };
        if cell.bytes < LEAST_BYTES || cell.endpoints == 0 || cell.workers == 0 {
            bail!("{text:?} needs at least {LEAST_BYTES} bytes, 1 endpoint and 1 worker");
        }
        Ok(cell)
    }
}

/// The JSON around a prompt fits in.
const LEAST_BYTES: usize = 256;

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { traffic, bytes, endpoints, workers } = self;
        let plural = if *workers == 1 { "" } else { "s" };
        write!(f, "{} KB, {endpoints} endpoints, {workers} worker{plural}", *bytes as f64 / 1024.0)?;
        match traffic {
            Traffic::Saturating => Ok(()),
            Traffic::NewPrompts => f.write_str(", new prompts"),
            Traffic::Steady => write!(f, ", {STEADY_RATE} requests/s"),
            Traffic::Streamed => f.write_str(", answers of 1 000 chunks"),
            Traffic::Paced => f.write_str(", answers of 100 chunks, one every 2 ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cells_can_be_read() {
        let cells: Vec<Cell> = DEFAULT_CELLS.split(',').map(|text| text.parse().unwrap()).collect();
        assert_eq!(cells[1].to_string(), "1 KB, 10 endpoints, 4 workers");
        assert_eq!(cells[4].to_string(), "2 KB, 10 endpoints, 1 worker, 300 requests/s");
    }

    #[test]
    fn what_is_not_a_cell_is_an_error() {
        for text in ["", "saturating/2048/10", "full/2048/10/1", "steady/2048/ten/1", "steady/10/10/1"] {
            text.parse::<Cell>().unwrap_err();
        }
    }
}
