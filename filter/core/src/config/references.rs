//! Whether the instances that plugins name are there, and fit.

use super::plugins::Plugins;
use crate::plugin::{PluginRef, Role};

/// One reference, apart from the plugin that has it.
struct Named {
    at: String,
    name: String,
    role: Role,
}

impl Plugins {
    /// Refuses every reference to a plugin that is not declared, that cannot play the part, or that refers back.
    pub(super) fn check_references(&mut self) {
        for index in 0..self.instances.len() {
            let own = &self.instances[index];
            let named = |PluginRef { parameter, name, role }: PluginRef<'_>| Named {
                at: format!("plugins[{index}].parameters.{parameter}"),
                name: name.to_owned(),
                role,
            };
            let references: Vec<Named> = own.plugin.references().into_iter().map(named).collect();
            for Named { at, name, role } in references {
                let Some(to) = self.require(&name, &at) else { continue };
                let plugin = &self.instances[to].plugin;
                let wrong_part = (!role.is_played_by(&**plugin))
                    .then(|| format!("{name:?} is a {}, which is no {}", plugin.type_name(), role.as_str()));
                let circle = self.way_back(to, index).map(|way| {
                    let names = way.iter().map(|&plugin| self.instances[plugin].name.as_str());
                    format!(
                        "plugins refer to each other in a circle: {}",
                        names.collect::<Vec<_>>().join(" → ")
                    )
                });
                if let Some(problem) = circle.or(wrong_part) {
                    self.refuse(&at, problem);
                }
            }
        }
    }

    /// The plugins on a way by references from `from` to `to`, beginning and ending with `to`.
    fn way_back(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.instances.len()];
        came_from[from] = Some(to);
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                let mut way = vec![to];
                let mut step = came_from[to];
                while let Some(before) = step.filter(|&before| before != to) {
                    way.push(before);
                    step = came_from[before];
                }
                way.push(to);
                way.reverse();
                return Some(way);
            }
            for reference in self.instances[at].plugin.references() {
                if let Some(next) = self.find(reference.name).filter(|&next| came_from[next].is_none()) {
                    came_from[next] = Some(at);
                    open.push(next);
                }
            }
        }
        None
    }
}
