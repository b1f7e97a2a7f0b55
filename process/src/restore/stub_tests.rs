use super::*;

/// A hole that no other test uses.
fn region(number: u64) -> Region {
    Region::new(0x1000_0000_0000 + number * Region::BYTES).expect("a free hole")
}

fn child(region: &mut Region, list: &List) -> i32 {
    let list = region.list(list, 7).expect("room");
    let mut arguments = CloneArguments {
        exit_signal: 17,
        ..CloneArguments::default()
    };
    region
        .handle()
        .start_process(&mut arguments, list)
        .expect("a child")
}

fn kill(pid: i32) {
    // SAFETY: no memory involved.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

#[test]
fn a_list_is_run_in_order_with_results_as_arguments_and_waits_at_a_closed_gate() {
    let mut region = region(0);
    let gate = region.gate().expect("room");
    let mut list = List::default();
    list.report();
    list.wait(gate);
    // umask returns the old mask: the second call gets what the first has set.
    list.call(libc::SYS_umask, &[0o27], "set the mask");
    list.call(libc::SYS_umask, &[0o77], "set the mask")
        .store(Store::Argument {
            operation: 4,
            argument: 0,
        });
    list.call(libc::SYS_umask, &[0], "set the mask")
        .expect(Check::Equals(0o77));
    list.call(libc::SYS_umask, &[0], "set the mask")
        .expect(Check::Equals(0o27));
    let pid = child(&mut region, &list);
    let limit = Duration::from_secs(10);
    assert_eq!(region.wait(1, limit).expect("in time"), Ok(()));
    assert_eq!(
        region
            .wait(2, Duration::from_millis(60))
            .map_err(|error| error.kind()),
        Err(io::ErrorKind::TimedOut),
        "the gate is closed"
    );
    region.open(gate);
    assert_eq!(region.wait(2, limit).expect("in time"), Ok(()));
    kill(pid);
}

#[test]
fn a_failed_operation_is_named_with_its_error() {
    let mut region = region(1);
    let mut list = List::default();
    list.call(libc::SYS_close, &[99_999], "close descriptor")
        .expect(Check::Any);
    list.call(libc::SYS_close, &[99_999], "close descriptor");
    let pid = child(&mut region, &list);
    let failure = region.wait(1, Duration::from_secs(10)).expect("in time");
    assert_eq!(
        failure,
        Err(Failure {
            task: 7,
            what: What {
                action: "close descriptor",
                thing: 99_999
            },
            error: libc::EBADF,
        })
    );
    kill(pid);
}

#[test]
fn the_stub_fits_its_page() {
    let bytes = stub_code::code().len();
    assert!(bytes > 100 && bytes < PAGE, "{bytes}");
}
