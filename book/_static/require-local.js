// Take the anywidget module from the folder beside this file, so that no CDN is asked.
(() => {
  const base = document.currentScript.src.replace(/[^/]*$/, "");
  require.config({ paths: { anywidget: base + "vendor/anywidget" } });
})();
