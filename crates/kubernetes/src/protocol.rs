//! Messages and services of kubelet's interfaces, generated from `proto`.

/// Includes the code that was generated from a file.
macro_rules! generated {
    ($name:ident, $file:literal, $what:literal) => {
        #[doc = $what]
        #[allow(missing_docs, unreachable_pub, clippy::all, clippy::cast_lossless)]
        pub(crate) mod $name {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}

generated!(device_plugin, "device_plugin/v1beta1.rs", "Device plugins.");
generated!(dra, "dra/k8s.io.kubelet.pkg.apis.dra.v1.rs", "Preparation of claims.");
generated!(dra_health, "dra_health/v1.rs", "Health of devices.");
generated!(
    plugin_registration,
    "plugin_registration/pluginregistration.rs",
    "Registration of drivers."
);
