//! What a cgroup has counted, as it can be read from inside a container that shows it.

use crate::kernel_file;

use super::CgroupUsage;

/// Where a container sees its own cgroup, or that of one controller in version 1.
const FOLDERS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
const OF_PROCESSES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"];

/// What was counted of everything in this container; nothing where it does not show its cgroup.
pub fn counted_inside() -> Option<CgroupUsage> {
    let read = |folders: [&str; 2], names: &[&str]| {
        let paths = folders.into_iter().flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
        paths.into_iter().find_map(|path| kernel_file::read(&path).ok())
    };
    let memory = read(FOLDERS, &["memory.events", "memory.oom_control"])?;
    let number = |text: Option<String>| text.and_then(|text| text.trim().parse().ok());
    Some(CgroupUsage {
        memory_peak: number(read(FOLDERS, &["memory.peak", "memory.max_usage_in_bytes"])),
        oom_kills: field(&memory, "oom_kill").unwrap_or(0),
        pids_limit_hits: read(OF_PROCESSES, &["pids.events"]).and_then(|text| field(&text, "max")).unwrap_or(0),
        processes_now: number(read(OF_PROCESSES, &["pids.current"])).unwrap_or(0),
    })
}

/// The number after a word that a line begins with.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_the_whole_word_before_it() {
        let version_1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let version_2 = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(field(version_1, "oom_kill"), Some(3));
        assert_eq!(field(version_2, "oom_kill"), Some(1));
        assert_eq!(field(version_2, "max"), Some(12));
        assert_eq!(field(version_2, "oom_k"), None);
    }
}
