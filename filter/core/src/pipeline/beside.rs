//! The state of a pipeline's plugins beside that of another pipeline.

use super::Pipeline;
use super::slot::rekey;

impl Pipeline {
    /// Reads the state of this plugin, and leaves it to another pipeline to change it.
    pub(crate) fn leave_state_to_another(&mut self, plugin: u64) {
        self.recorders.retain(|slot| slot.key != plugin);
    }

    /// Keeps the state of a plugin under another key.
    pub(crate) fn rekey(&mut self, key: u64, new: u64) {
        for profile in &mut self.profiles {
            rekey(&mut profile.filters, key, new);
            rekey(profile.scorers.iter_mut().map(|(slot, _)| slot), key, new);
        }
        rekey(&mut self.prefix_producers, key, new);
        rekey(&mut self.recorders, key, new);
    }
}
