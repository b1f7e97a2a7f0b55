//! A machine with two memory devices behind two ports, whose kernel answers writes to sysfs as Linux
//! does: it makes regions at the lowest free place.

use std::os::unix::fs::symlink;

use super::*;

const PLACE: &str = "sys/devices/platform/ACPI0017:00/root0";

/// Links `name` of the bus to a device, which gets these attributes.
fn device(root: &Root, place: &str, attributes: &[(&str, &str)]) {
    for (attribute, text) in attributes {
        root.create(&format!("{place}/{attribute}"), text).unwrap();
    }
    fs::create_dir_all(root.path(place)).unwrap();
    fs::create_dir_all(root.path(CXL)).unwrap();
    let name = place.rsplit('/').next().unwrap();
    symlink(root.path(place), root.path(&format!("{CXL}/{name}"))).unwrap();
}

/// `serials` of mem0 and mem1.
fn machine(serials: [&str; 2]) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::reacting(directory.path(), Box::new(kernel));
    root.create(FLUSH, "").unwrap();
    root.create(&format!("{DRIVER}/bind"), "").unwrap();
    device(
        &root,
        &format!("{PLACE}/decoder0.0"),
        &[
            ("start", "0x3d0000000"),
            ("size", "0x100000000"),
            ("create_pmem_region", "region0"),
            ("delete_region", ""),
        ],
    );
    for (number, serial) in serials.iter().enumerate() {
        let host = format!("sys/devices/pci0000:0c/0000:0{}:00.0", number + 1);
        let memory = format!("{host}/mem{number}");
        device(&root, &memory, &[("serial", serial)]);
        let endpoint = format!("{PLACE}/port1/endpoint{}", number + 2);
        device(&root, &endpoint, &[]);
        symlink(root.path(&memory), root.path(&format!("{endpoint}/uport"))).unwrap();
        device(
            &root,
            &format!("{endpoint}/decoder{}.0", number + 2),
            &[
                ("mode", "none"),
                ("dpa_size", "0x0"),
                ("dpa_resource", "0xffffffffffffffff"),
            ],
        );
    }
    (directory, root)
}

/// What Linux does when these attributes are written.
fn kernel(root: &Root, path: &str, text: &str) -> io::Result<()> {
    let name = |path: &str| path.rsplit('/').nth(1).unwrap_or_default().to_owned();
    if path.ends_with("create_pmem_region") {
        device(
            root,
            &format!("{PLACE}/decoder0.0/{text}"),
            &[
                ("uuid", ""),
                ("interleave_ways", "0"),
                ("interleave_granularity", "0"),
                ("size", "0"),
                ("target0", ""),
                ("target1", ""),
                ("commit", "0"),
                ("resource", "0x3d0000000"),
            ],
        );
    }
    if path.ends_with("/uuid") && text.len() != UUID.len() + 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if path.ends_with("delete_region") {
        fs::remove_file(root.path(&format!("{CXL}/{text}")))?;
        fs::remove_dir_all(root.path(&format!("{PLACE}/decoder0.0/{text}")))?;
    }
    if path.ends_with("dpa_size") && text != "0" {
        let at = root.read("dpa").unwrap_or_else(|_| "0x0".to_owned());
        root.write(&format!("{CXL}/{}/dpa_resource", name(path)), &at)?;
    }
    Ok(())
}

const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// Makes a region of both devices by hand, records it and loses power.
fn after_a_power_loss(serials: [&str; 2]) -> (tempfile::TempDir, Root, Region) {
    let (_first, root) = machine(serials);
    let target = |number: usize| Target {
        serial: serials[number].to_owned(),
        host: format!("0000:0{}:00.0", number + 1),
        dpa: 0,
    };
    let region = Region {
        uuid: UUID.to_owned(),
        base: 0x3_d000_0000,
        bytes: 2 << 30,
        granularity: 256,
        // Not in the order of their names.
        target: vec![target(1), target(0)],
    };
    make(&root, &region).unwrap();
    let dax = DaxDevice {
        name: "dax0.0".to_owned(),
        node: 1,
        base: region.base + (1 << 30),
        bytes: 1 << 30,
    };
    let said = record(&root, &[&dax]).unwrap();
    assert!(said.starts_with("1 CXL region in "), "{said}");
    assert_eq!(recorded(&root).unwrap(), std::slice::from_ref(&region));

    let (directory, fresh) = machine(serials);
    let copy = fs::read_to_string(root.path(FILE)).unwrap();
    fresh.create(FILE, &copy).unwrap();
    (directory, fresh, region)
}

#[test]
fn a_region_is_made_again_as_it_was() {
    let (_directory, root, region) = after_a_power_loss(["0x10", "0x20"]);
    assert_eq!(restore(&root), [""; 0]);
    assert_eq!(existing(&root), [region]);
    let read = |path: &str| root.read(&format!("{CXL}/{path}")).unwrap();
    assert_eq!(read("region0/target0"), "decoder3.0");
    assert_eq!(read("region0/commit"), "1");
    assert_eq!(read("decoder3.0/mode"), "pmem");
    assert_eq!(read("decoder3.0/dpa_size"), "0x40000000");
    assert_eq!(root.read(&format!("{DRIVER}/bind")).unwrap(), "region0");
    // A second time there is nothing to do.
    assert_eq!(restore(&root), [""; 0]);
    assert_eq!(existing(&root).len(), 1);
}

#[test]
fn devices_of_one_serial_number_are_told_apart_by_their_places() {
    let (_directory, root, region) = after_a_power_loss(["0x0", "0x0"]);
    assert_eq!(restore(&root), [""; 0]);
    assert_eq!(existing(&root), [region]);
}

#[test]
fn a_region_that_comes_out_elsewhere_on_a_device_is_taken_back() {
    let (_directory, root, _) = after_a_power_loss(["0x10", "0x20"]);
    root.create("dpa", "0x10000000").unwrap();
    let said = restore(&root).join("; ");
    assert!(
        said.contains("it came out at 0x10000000 and was at 0x0"),
        "{said}"
    );
    assert!(existing(&root).is_empty());
    for decoder in ["decoder2.0", "decoder3.0"] {
        assert_eq!(attribute(&root, decoder, "dpa_size"), Some(0));
    }
}

#[test]
fn a_device_or_a_window_that_is_gone_is_named() {
    let (_directory, root, _) = after_a_power_loss(["0x10", "0x20"]);
    let serial = root.path(&format!("{CXL}/mem1/serial"));
    fs::write(&serial, "0x30").unwrap();
    assert_eq!(
        restore(&root),
        [format!(
            "CXL region {UUID}: no device has the serial number 0x20"
        )]
    );
    fs::write(&serial, "0x20").unwrap();
    root.create(&format!("{CXL}/decoder0.0/start"), "0x900000000")
        .unwrap();
    assert_eq!(
        restore(&root),
        [format!(
            "CXL region {UUID}: no window of the platform holds 0x3d0000000"
        )]
    );
}

#[test]
fn a_step_that_the_kernel_refuses_is_named_and_nothing_is_left() {
    let (_directory, root, _) = after_a_power_loss(["0x10", "0x20"]);
    fs::remove_file(root.path(&format!("{CXL}/decoder2.0/mode"))).unwrap();
    let said = restore(&root).join("; ");
    assert!(said.contains("decoder2.0/mode = pmem: "), "{said}");
    assert!(existing(&root).is_empty());
    assert_eq!(attribute(&root, "decoder3.0", "dpa_size"), Some(0));
}

#[test]
fn a_damaged_record_is_no_reason_to_stop() {
    let (_directory, root) = machine(["0x10", "0x20"]);
    for text in ["region = 3", "[[region]]\nuuid = \"x\"", "\u{0}"] {
        root.create(FILE, text).unwrap();
        let said = restore(&root);
        assert!(said.len() == 1 && said[0].contains(FILE), "{said:?}");
    }
}

#[test]
fn without_a_cxl_region_nothing_is_recorded_and_an_old_record_goes() {
    let (_directory, root, region) = after_a_power_loss(["0x10", "0x20"]);
    let elsewhere = DaxDevice {
        name: "dax1.0".to_owned(),
        node: 2,
        base: region.base + region.bytes,
        bytes: 1 << 30,
    };
    assert_eq!(record(&root, &[&elsewhere]).unwrap(), "");
    assert!(!root.exists(FILE));
}

#[test]
fn a_device_whose_labels_linux_would_ignore_is_refused() {
    let (_directory, root, region) = after_a_power_loss(["0x0", "0x0"]);
    assert_eq!(restore(&root), [""; 0]);
    let dax = DaxDevice {
        name: "dax0.0".to_owned(),
        node: 1,
        base: region.base,
        bytes: 1 << 30,
    };
    fs::create_dir_all(root.path("sys/bus/dax/devices")).unwrap();
    symlink(
        "../../../devices/ndbus0/region0/dax0.1/dax0.0",
        root.path("sys/bus/dax/devices/dax0.0"),
    )
    .unwrap();
    let cookie = "sys/bus/nd/devices/region0/set_cookie";
    root.create(cookie, "0x0\n").unwrap();
    let why = record(&root, &[&dax]).unwrap_err();
    assert!(why.contains("without a serial number"), "{why}");
    root.create(cookie, "0x9abc\n").unwrap();
    assert!(record(&root, &[&dax]).is_ok());
}
