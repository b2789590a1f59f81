//! Which VMs there are: each sends a heartbeat again and again, and one that stops is gone.

use core::time::Duration;

use crate::shared::{Member, Roster};

/// The members after this one has sent a heartbeat, which is of now. Those whose last heartbeat is older than `gone_after` are
/// left out.
///
/// A heartbeat ahead of it was sent before the wall clock was set back. It counts as one of now, so that its VM stays if it lives
/// and goes in time if it does not: to drop it at once would drop its load.
pub fn after_heartbeat(roster: Roster, own: Member, gone_after: Duration) -> Roster {
    let now = own.heartbeat_ns;
    let gone_after = u64::try_from(gone_after.as_nanos()).unwrap_or(u64::MAX);
    let others = roster.members.into_iter().filter(|member| member.vm != own.vm);
    let others = others.map(|member| Member { heartbeat_ns: member.heartbeat_ns.min(now), ..member });
    let here = others.filter(|member| now - member.heartbeat_ns <= gone_after);
    Roster { members: here.chain([own]).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000_000 * SECOND;
    const GONE_AFTER: Duration = Duration::from_millis(1500);

    fn member(vm: u64, heartbeat_ns: u64) -> Member {
        Member { vm, heartbeat_ns, asked: 0 }
    }

    fn heartbeat(roster: Roster, vm: u64, now: u64) -> Roster {
        after_heartbeat(roster, member(vm, now), GONE_AFTER)
    }

    fn vms(roster: &Roster) -> Vec<u64> {
        roster.members.iter().map(|member| member.vm).collect()
    }

    #[test]
    fn a_member_without_heartbeats_is_gone_after_its_time() {
        let roster = Roster { members: vec![member(1, NOW), member(2, NOW)] };
        let roster = heartbeat(roster, 1, NOW + SECOND);
        assert_eq!(vms(&roster), [2, 1]);
        assert_eq!(vms(&heartbeat(roster, 1, NOW + 2 * SECOND)), [1]);
    }

    #[test]
    fn a_clock_set_back_keeps_who_lives_and_lets_go_who_does_not() {
        let members = [1, 2, 3].map(|vm| member(vm, NOW)).into();
        let back = NOW - 3600 * SECOND;
        let mut roster = heartbeat(Roster { members }, 1, back);
        assert_eq!(vms(&roster), [2, 3, 1], "who has not had its turn is not gone");
        for quarters in 1..=8 {
            for vm in [1, 2] {
                roster = heartbeat(roster, vm, back + quarters * SECOND / 4);
            }
        }
        assert_eq!(vms(&roster), [1, 2], "3 has stopped");
    }
}
