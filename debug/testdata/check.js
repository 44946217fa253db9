// Returns what is wrong with the looks of the page on a screen of that size, a line for each.
((width, height) => {
	const problems = [];
	const name = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.className.length ? "." + e.className : "") + " " + JSON.stringify(e.textContent.trim().slice(0, 40));
	const visible = e => e.checkVisibility() && e.getClientRects().length > 0;

	// Everything has style: each class a rule, and each element a rule of its own or a parent with one.
	const rules = Array.from(document.styleSheets).flatMap(s => Array.from(s.cssRules)).filter(r => r.selectorText && r.selectorText !== "*");
	if (rules.length < 20) problems.push("the page has a style sheet of " + rules.length + " rules");
	for (const e of document.body.querySelectorAll("*")) {
		for (const c of e.classList) {
			if (!rules.some(r => r.selectorText.includes("." + c))) problems.push(name(e) + ": no style for the class " + c);
		}
		const styled = p => p !== document.body && rules.some(r => p.matches(r.selectorText));
		let p = e;
		while (p && p !== document.body && !styled(p)) p = p.parentElement;
		if (p === document.body && visible(e) && e.id !== "parts") problems.push(name(e) + ": no style");
	}

	// Nothing is cut off, and nothing makes the page wider than the screen.
	if (document.documentElement.scrollWidth > width) problems.push("the page is " + document.documentElement.scrollWidth + " wide");
	for (const e of document.querySelectorAll("figcaption, output, .range, summary, h2")) {
		if (visible(e) && e.scrollWidth > e.clientWidth + 1) problems.push(name(e) + ": is cut off");
	}

	// All text stands out from what is behind it, as WCAG 2 wants for text of this size.
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = color => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return Array.from(canvas.getImageData(0, 0, 1, 1).data);
	};
	const luminance = color => {
		const [r, g, b] = rgba(color).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const background = e => {
		for (; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor;
			if (rgba(color)[3] === 255) return color;
		}
		return "white";
	};
	for (const e of document.body.querySelectorAll("*")) {
		const hasText = Array.from(e.childNodes).some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
		if (!hasText || !visible(e) || e.tagName === "NOSCRIPT") continue;
		const [a, b] = [luminance(getComputedStyle(e).color), luminance(background(e))].sort((a, b) => b - a);
		const contrast = (a + 0.05) / (b + 0.05);
		if (contrast < 4.5) problems.push(name(e) + ": has a contrast of " + contrast.toFixed(1));
	}

	// A laptop shows the verdict and the first charts without scrolling.
	if (width > 1000) {
		const charts = Array.from(document.querySelectorAll(".charts")).filter(visible).slice(0, 3);
		const bottom = charts[charts.length - 1].getBoundingClientRect().bottom;
		if (document.getElementById("verdict").getBoundingClientRect().top < 0 || bottom > height) problems.push("the first charts end at " + bottom);
	}
	return Array.from(new Set(problems)).slice(0, 20).join("\n");
})
