//! The numbers of the system calls that the rules name.

/// One name and its number here; none where this architecture has no such call.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) number: Option<u32>,
}

/// The highest number known when the rules were written (`file_setattr`, Linux 6.17). Nobody has judged what lies
/// above.
pub(super) const HIGHEST: u32 = 469;

/// `kept` exist on both architectures, `legacy` on x86_64 only. Those that libc has no constant for stand with their
/// numbers: `removed` ones of x86_64, and `recent` ones, which have the same number everywhere.
macro_rules! calls {
    (
        kept { $($kept:ident => $kept_number:ident,)* }
        legacy { $($legacy:ident => $legacy_number:ident,)* }
        removed { $($removed:ident = $removed_number:literal,)* }
        recent { $($recent:ident = $number:literal,)* }
    ) => {
        pub(super) const CALLS: &[Call] = &[
            $(Call { name: stringify!($kept), number: Some(libc::$kept_number as u32) },)*
            $(
                #[cfg(target_arch = "x86_64")]
                Call { name: stringify!($legacy), number: Some(libc::$legacy_number as u32) },
                #[cfg(not(target_arch = "x86_64"))]
                Call { name: stringify!($legacy), number: None },
            )*
            $(
                Call {
                    name: stringify!($removed),
                    number: if cfg!(target_arch = "x86_64") { Some($removed_number) } else { None },
                },
            )*
            $(Call { name: stringify!($recent), number: Some($number) },)*
        ];
    };
}

calls! {
    kept {
        mount => SYS_mount,
        umount2 => SYS_umount2,
        pivot_root => SYS_pivot_root,
        chroot => SYS_chroot,
        fsopen => SYS_fsopen,
        fsconfig => SYS_fsconfig,
        fsmount => SYS_fsmount,
        fspick => SYS_fspick,
        move_mount => SYS_move_mount,
        open_tree => SYS_open_tree,
        mount_setattr => SYS_mount_setattr,
        setns => SYS_setns,
        unshare => SYS_unshare,
        clone => SYS_clone,
        clone3 => SYS_clone3,
        name_to_handle_at => SYS_name_to_handle_at,
        open_by_handle_at => SYS_open_by_handle_at,
        ptrace => SYS_ptrace,
        process_vm_readv => SYS_process_vm_readv,
        process_vm_writev => SYS_process_vm_writev,
        process_madvise => SYS_process_madvise,
        pidfd_getfd => SYS_pidfd_getfd,
        kcmp => SYS_kcmp,
        migrate_pages => SYS_migrate_pages,
        move_pages => SYS_move_pages,
        mbind => SYS_mbind,
        set_mempolicy => SYS_set_mempolicy,
        set_mempolicy_home_node => SYS_set_mempolicy_home_node,
        io_uring_setup => SYS_io_uring_setup,
        io_uring_enter => SYS_io_uring_enter,
        io_uring_register => SYS_io_uring_register,
        bpf => SYS_bpf,
        perf_event_open => SYS_perf_event_open,
        userfaultfd => SYS_userfaultfd,
        add_key => SYS_add_key,
        request_key => SYS_request_key,
        keyctl => SYS_keyctl,
        fanotify_init => SYS_fanotify_init,
        fanotify_mark => SYS_fanotify_mark,
        fcntl => SYS_fcntl,
        ioctl => SYS_ioctl,
        personality => SYS_personality,
        prlimit64 => SYS_prlimit64,
        setrlimit => SYS_setrlimit,
        mknodat => SYS_mknodat,
        socket => SYS_socket,
        socketpair => SYS_socketpair,
        reboot => SYS_reboot,
        kexec_load => SYS_kexec_load,
        kexec_file_load => SYS_kexec_file_load,
        init_module => SYS_init_module,
        finit_module => SYS_finit_module,
        delete_module => SYS_delete_module,
        swapon => SYS_swapon,
        swapoff => SYS_swapoff,
        acct => SYS_acct,
        quotactl => SYS_quotactl,
        quotactl_fd => SYS_quotactl_fd,
        settimeofday => SYS_settimeofday,
        clock_settime => SYS_clock_settime,
        clock_adjtime => SYS_clock_adjtime,
        adjtimex => SYS_adjtimex,
        sethostname => SYS_sethostname,
        setdomainname => SYS_setdomainname,
        syslog => SYS_syslog,
        vhangup => SYS_vhangup,
        lookup_dcookie => SYS_lookup_dcookie,
        connect => SYS_connect,
        bind => SYS_bind,
        fchmod => SYS_fchmod,
        fchmodat => SYS_fchmodat,
        fchown => SYS_fchown,
        fchownat => SYS_fchownat,
        utimensat => SYS_utimensat,
        getxattr => SYS_getxattr,
        lgetxattr => SYS_lgetxattr,
        fgetxattr => SYS_fgetxattr,
        listxattr => SYS_listxattr,
        llistxattr => SYS_llistxattr,
        flistxattr => SYS_flistxattr,
        setxattr => SYS_setxattr,
        lsetxattr => SYS_lsetxattr,
        fsetxattr => SYS_fsetxattr,
        removexattr => SYS_removexattr,
        lremovexattr => SYS_lremovexattr,
        fremovexattr => SYS_fremovexattr,
        inotify_init1 => SYS_inotify_init1,
        inotify_add_watch => SYS_inotify_add_watch,
        shmget => SYS_shmget,
        shmat => SYS_shmat,
        shmctl => SYS_shmctl,
        semget => SYS_semget,
        semop => SYS_semop,
        semtimedop => SYS_semtimedop,
        semctl => SYS_semctl,
        msgget => SYS_msgget,
        msgsnd => SYS_msgsnd,
        msgrcv => SYS_msgrcv,
        msgctl => SYS_msgctl,
        mq_open => SYS_mq_open,
        mq_unlink => SYS_mq_unlink,
        sched_setaffinity => SYS_sched_setaffinity,
        sched_setparam => SYS_sched_setparam,
        sched_setscheduler => SYS_sched_setscheduler,
        sched_setattr => SYS_sched_setattr,
        setpriority => SYS_setpriority,
        ioprio_set => SYS_ioprio_set,
        nfsservctl => SYS_nfsservctl,
    }
    legacy {
        modify_ldt => SYS_modify_ldt,
        mknod => SYS_mknod,
        chmod => SYS_chmod,
        chown => SYS_chown,
        lchown => SYS_lchown,
        utime => SYS_utime,
        utimes => SYS_utimes,
        futimesat => SYS_futimesat,
        inotify_init => SYS_inotify_init,
        iopl => SYS_iopl,
        ioperm => SYS_ioperm,
        _sysctl => SYS__sysctl,
        uselib => SYS_uselib,
        ustat => SYS_ustat,
        sysfs => SYS_sysfs,
    }
    removed {
        create_module = 174,
        get_kernel_syms = 177,
        query_module = 178,
    }
    recent {
        fchmodat2 = 452,
        statmount = 457,
        listmount = 458,
        setxattrat = 463,
        getxattrat = 464,
        listxattrat = 465,
        removexattrat = 466,
        file_setattr = 469,
        open_tree_attr = 467,
    }
}
