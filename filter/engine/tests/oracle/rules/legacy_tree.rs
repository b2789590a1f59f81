//! The decision tree of the first endpoint pickers, as a list of nodes.

use super::cycle::Cycle;
use super::plan::Plugin;

/// The tree with the parameters of a plugin, for one request.
pub(super) struct LegacyTree<'a> {
    pub(super) cycle: &'a Cycle<'a>,
    pub(super) plugin: &'a Plugin,
}

/// A node that keeps some of its endpoints.
#[derive(Clone, Copy)]
enum Node {
    Idle,
    ShortQueue,
    LeastQueue,
    LeastKv,
    Adapter,
    Room,
    AdapterOrRoom,
    Likely,
}

impl LegacyTree<'_> {
    pub(super) fn keep(&self, all: &[usize]) -> Vec<usize> {
        use Node::{Adapter, AdapterOrRoom, Idle, LeastKv, LeastQueue, Likely, Room, ShortQueue};
        let is_first = self.version() == "v0.1";
        let by_queue = [LeastQueue, if is_first { AdapterOrRoom } else { Likely }, LeastKv];
        if self.cycle.spec.priority <= 0 && ["v0.1", "v0.3"].contains(&self.version()) {
            let idle = self.node(Idle, all);
            return if idle.is_empty() { idle } else { self.path(&by_queue, &idle) };
        }
        let low = self.node(ShortQueue, all);
        if low.is_empty() {
            return self.path(&by_queue, all);
        }
        let near = match is_first {
            true if !self.node(Adapter, &low).is_empty() => self.node(Adapter, &low),
            true => self.path(&[Room], &low),
            false => self.path(&[Likely], &low),
        };
        self.path(&[LeastQueue, LeastKv], &near)
    }

    fn version(&self) -> &str {
        self.plugin.text("version", "v0.3")
    }

    /// The endpoints after these nodes; a node that keeps none is left out.
    fn path(&self, nodes: &[Node], endpoints: &[usize]) -> Vec<usize> {
        nodes.iter().fold(endpoints.to_vec(), |endpoints, &node| {
            let kept = self.node(node, &endpoints);
            if kept.is_empty() { endpoints } else { kept }
        })
    }

    fn node(&self, node: Node, endpoints: &[usize]) -> Vec<usize> {
        let reading = |e: usize| self.cycle.reading(e);
        let queue = |e: usize| reading(e).waiting.unwrap_or(0);
        let kv = |e: usize| reading(e).kv_usage.unwrap_or(0.0);
        let model = self.cycle.spec.model;
        let waits_too = self.version() == "v0.5";
        let adapters = |e: usize| {
            let lora = reading(e).lora.unwrap_or_default();
            if waits_too { [lora.running, lora.waiting].concat() } else { lora.running }
        };
        let has = |e: usize| adapters(e).iter().any(|adapter| adapter == model);
        let has_room = |e: usize| adapters(e).len() < reading(e).lora.map_or(0, |lora| lora.max as usize);
        let limit =
            self.plugin.number("queueingThresholdLoRA", if self.version() == "v0.1" { 50.0 } else { 128.0 });
        let least = endpoints.iter().map(|&e| queue(e)).min().unwrap_or(0);
        let range = endpoints.iter().map(|&e| queue(e) - least).max().unwrap_or(0);
        let lowest = endpoints.iter().map(|&e| kv(e)).fold(f64::INFINITY, f64::min);
        let highest = endpoints.iter().map(|&e| kv(e)).fold(0.0, f64::max);
        let n = endpoints.len().max(1);
        // Only the certain probabilities are configured, 0 and 1.
        let likely =
            if self.plugin.number("loraAffinityThreshold", 1.0) > 0.5 { Node::Adapter } else { Node::Room };
        let keeps = |e: usize| match node {
            Node::Idle => {
                queue(e) as f64 <= self.plugin.number("queueThresholdCritical", 5.0) && kv(e) <= 0.8
            }
            Node::ShortQueue if waits_too => queue(e) as f64 <= limit,
            Node::ShortQueue => (queue(e) as f64) < limit,
            Node::LeastQueue => queue(e) - least <= range / n as u64,
            Node::LeastKv => kv(e) <= lowest + (highest - lowest) / n as f64,
            Node::Adapter => has(e),
            Node::Room => has_room(e),
            Node::AdapterOrRoom => has(e) || has_room(e),
            Node::Likely => false,
        };
        let kept: Vec<usize> = endpoints.iter().copied().filter(|&e| keeps(e)).collect();
        let Node::Likely = node else { return kept };
        let affine = self.node(Node::Adapter, endpoints);
        let free: Vec<usize> = endpoints.iter().copied().filter(|&e| !has(e) && has_room(e)).collect();
        match (likely, affine.is_empty(), free.is_empty()) {
            (Node::Adapter, false, _) | (_, _, true) => affine,
            _ => free,
        }
    }
}
