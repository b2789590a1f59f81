//! The filter configurations that use a pool.

use core::fmt;

use crate::shared::sync::Mutex;

/// Has Envoy's main thread call the configuration's scheduled hook soon. It is called from threads of the module.
pub type Wake = Box<dyn Fn() + Send>;

/// The filter configurations that use a pool.
#[derive(Default)]
pub(crate) struct Users(Mutex<List>);

#[derive(Default)]
struct List {
    last: u64,
    users: Vec<(u64, Wake)>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Users")
    }
}

impl Users {
    /// Adds a user. Returns its number.
    pub(crate) fn add(&self, wake: Wake) -> u64 {
        let mut list = self.0.lock();
        list.last += 1;
        let number = list.last;
        list.users.push((number, wake));
        number
    }

    /// Removes a user. Its `wake` is not called any more when this returns.
    pub(crate) fn remove(&self, number: u64) {
        self.0.lock().users.retain(|(other, _)| *other != number);
    }

    pub(crate) fn wake_all(&self) {
        self.0.lock().users.iter().for_each(|(_, wake)| wake());
    }
}
