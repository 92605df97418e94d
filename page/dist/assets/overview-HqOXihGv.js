import{b as t,E as e}from"./ui-CT8jbBbe.js";function a(){return t(e,{title:"overview"})}export{a as default};
